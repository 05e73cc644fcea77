"""Settings of engine=mindspeed_rl that no other section holds. Defaults: conf/engine/mindspeed_rl.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from stages.base.bounds import Positive
from stages.base.identity import CheckoutDirectory, NotInIdentity
from stages.engines.config import UpstreamKeys
from stages.engines.ray import RayEngine

Contract = Literal["667a547"]
CONTRACT: Contract = "667a547"
"""Commit of Ascend/MindSpeed-RL that stands for all from it to c21465a, the commit before 749829d."""


@dataclass(frozen=True)
class MindspeedRlEngine(RayEngine):
    """MindSpeed-RL's GRPO (cli/train_grpo.py) on a Ray cluster of its own, ai_framework mindspore."""

    name: Literal["mindspeed_rl"]
    """mindspeed_rl: the user's checkout of Ascend/MindSpeed-RL."""
    mindspeed_rl_home: Annotated[str | None, CheckoutDirectory()]
    """The checkout, with megatron, mindspeed and mindspeed_llm copied in as its guide says; null: plan and
    run --render do without it, run refuses."""
    convert_python: Annotated[str | None, NotInIdentity()]
    """Interpreter of the checkout's converter, if it needs an environment of its own; null: engine.python."""
    convert_env: Annotated[Mapping[str, str], NotInIdentity()]
    """Variables added to engine.env for the converter."""
    contract: Literal["auto", "667a547"]
    """Version of arguments and YAML keys, of which one is known; auto: the same, once the checkout's own
    files agree."""
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
    seq_length: Positive | None
    """Longest sequence of training; null: prompt + completion, up to the next multiple of 128."""
    max_model_len: Positive | None
    """vLLM's longest sequence; null: seq_length."""
    max_num_seqs: Positive
    """Sequences that vLLM decodes at once (shipped YAML of 7B: 1024)."""
    max_num_batched_tokens: Positive | None
    """Tokens of one vLLM step; null: 8192 (shipped YAML of 7B), or max_model_len if that is more."""
    device_memory_gib: Annotated[Positive, NotInIdentity()]
    """Memory of a card (A2 and one die of A3: 64, of which the driver keeps some)."""
    guarantee_order: bool
    """Keep the order of samples from generation to training: repeatable, and slower (shipped YAML: false)."""
    runtime_env: Annotated[Mapping[str, str], NotInIdentity()]
    """Variables of every Ray worker, besides configs/envs/runtime_env.yaml's: HCCL_SOCKET_IFNAME, for one."""
    log_interval: Annotated[Positive, NotInIdentity()]
    """Rows between two lines of preprocess_data.py's log (shipped YAML: 1000)."""
    cpus_per_npu: Annotated[Positive, NotInIdentity()]
    """CPUs that Ray reserves beside each card; a run waits for ever on a machine with fewer (default 8)."""
    upstream: UpstreamKeys
    """More keys of the training YAML, merged last: SECTION.KEY."""


SETTINGS = MindspeedRlEngine
