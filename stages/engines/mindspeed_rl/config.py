"""Settings of engine=mindspeed_rl that no other section holds. Defaults: conf/engine/mindspeed_rl.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from stages.base.bounds import Positive, PositiveFloat
from stages.base.identity import Checkout, NotInIdentity
from stages.engines.config import OutsideEngine, UpstreamKeys

Port = Annotated[int, Ge(1024), Le(65535)]
Version = Literal["667a547", "05a90d7"]
VERSIONS: tuple[Version, ...] = ("05a90d7", "667a547")
"""Commits of Ascend/MindSpeed-RL whose contract is known: each stands for its window. The first is assumed
without a checkout."""


@dataclass(frozen=True)
class MindspeedRlEngine(OutsideEngine):
    """MindSpeed-RL's GRPO (cli/train_grpo.py) on a Ray cluster of its own, ai_framework mindspore."""

    name: Literal["mindspeed_rl"]
    """mindspeed_rl: the user's checkout of Ascend/MindSpeed-RL."""
    mindspeed_rl_home: Annotated[str | None, Checkout()]
    """The checkout, with megatron, mindspeed and mindspeed_llm copied in as its guide says; null: plan and
    run --render assume contract 05a90d7, run refuses."""
    mindspeed_llm_home: Annotated[str | None, Checkout(every_node=False)]
    """Checkout of Ascend/MindSpeed-LLM whose convert_ckpt.py converts weights; contract 667a547 brings its
    own converter and needs none."""
    convert_python: Annotated[str | None, NotInIdentity()]
    """Interpreter of the converter: upstream wants an environment of its own for it; null: engine.python."""
    convert_env: Annotated[Mapping[str, str], NotInIdentity()]
    """Variables added to engine.env for the converter."""
    contract: Literal["auto", "667a547", "05a90d7"]
    """Version of arguments and YAML keys; auto: recognised from the checkout's own files."""
    prompt_type: str
    """Template of configs/model/templates.json that questions are put into; its verifiers look for the answer
    form that qwen_r1 asks for."""
    workers: Annotated[Positive, NotInIdentity()]
    """Processes of preprocess_data.py (shipped YAML: 8)."""
    verifier_function: tuple[str, ...]
    """Rule rewards by the names that models/rule_verifier.py registers (shipped YAML: base_acc)."""
    verifier_weight: tuple[float, ...]
    """One factor per function."""
    use_integrated_worker: bool
    """true: reference and policy share all cards (shipped YAML); false: the reference has its own cards."""
    reference_npus: Positive | None
    """Cards of the reference without integrated workers, cut as layout.train cuts; null: as many as cards."""
    reward_npus: Positive | None
    """Cards of a reward model besides the rules, without integrated workers only; null: no reward model."""
    reward_load: str | None
    """The reward model's mcore directory, cut as layout.train cuts."""
    mini_batch_size: Positive | None
    """Prompts per optimizer update; null: train.prompts_per_step, one update a step (shipped YAML)."""
    micro_batch_size: Positive
    """Completions per card and forward-backward pass (shipped YAML of 7B: 4)."""
    forward_micro_batch_size: Positive | None
    """Completions per card and pass of policy and reference without gradients; null: micro_batch_size."""
    seq_length: Positive | None
    """Longest sequence of training; null: prompt + completion, up to the next multiple of 128."""
    max_model_len: Positive | None
    """vLLM's longest sequence; null: seq_length."""
    max_num_seqs: Positive
    """Sequences that vLLM decodes at once (shipped YAML of 7B: 1024)."""
    max_num_batched_tokens: Positive | None
    """Tokens of one vLLM step; null: 8192 (shipped YAML of 7B), or max_model_len if that is more."""
    gpu_memory_utilization: Annotated[float, Gt(0), Le(1)]
    """Share of the card that vLLM may take (shipped YAML of 7B: 0.4)."""
    device_memory_gib: Annotated[Positive, NotInIdentity()]
    """Memory of a card (A2 and one die of A3: 64, of which the driver keeps some)."""
    use_remove_padding: bool
    """Train without padding (shipped YAML of 32B); contract 05a90d7 only."""
    guarantee_order: bool
    """Keep the order of samples from generation to training: repeatable, and slower (shipped YAML: false)."""
    runtime_env: Annotated[Mapping[str, str], NotInIdentity()]
    """Variables of every Ray worker, besides configs/envs/runtime_env.yaml's: HCCL_SOCKET_IFNAME, for one."""
    cpus_per_npu: Annotated[Positive, NotInIdentity()]
    """CPUs that Ray reserves beside each card; a run waits for ever on a machine with fewer (default 8)."""
    ray_address: Annotated[str | None, NotInIdentity()]
    """HOST:PORT of a Ray cluster that is there already: it is used and left running; null: one is started for
    the run on the launcher's machines, and stopped after it."""
    ray_dashboard_port: Annotated[Port | None, NotInIdentity()]
    """Port of the dashboard of a cluster that is started; null: a free one."""
    ray_options: Annotated[tuple[str, ...], NotInIdentity()]
    """More options of every `ray start`, for example [--num-cpus=640]."""
    ray_wait_timeout_s: Annotated[PositiveFloat, NotInIdentity()]
    """All cards must be registered by then."""
    upstream: UpstreamKeys
    """More keys of the training YAML, merged last: SECTION.KEY."""


SETTINGS = MindspeedRlEngine
