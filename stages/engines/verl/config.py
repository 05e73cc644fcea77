"""Settings of engine=verl that no other section holds. Defaults: conf/engine/verl.yaml."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from stages.base.bounds import Positive, PositiveFloat
from stages.base.identity import NotInIdentity
from stages.engines.config import OutsideEngine, UpstreamKeys

Port = Annotated[int, Ge(1024), Le(65535)]


@dataclass(frozen=True)
class VerlEngine(OutsideEngine):
    """verl's GRPO (python -m verl.trainer.main_ppo) on a Ray cluster."""

    name: Literal["verl"]
    """verl: the package in the environment of engine.python."""
    sft: Annotated[Literal["off"], NotInIdentity()]
    """off: a warm start is model.path=DIR of an exported model."""
    device: Literal["npu", "cpu"]
    """cpu: verl trains with grpoflow's plugin (stages/engines/verl/plugin) in float32; for small models."""
    strategy: Literal["fsdp2", "megatron"]
    """Sharding of the trained model. megatron (through MindSpeed) is rendered, but was never run."""
    rollout: Literal["vllm", "sglang"]
    """Program that generates completions on NPUs."""
    mini_batch_size: Positive | None
    """Prompts per optimizer update; null: train.prompts_per_step, one update per iteration."""
    micro_batch_size: Positive
    """Completions per card and forward-backward pass."""
    forward_micro_batch_size: Positive | None
    """Completions per card and pass without gradients; null: micro_batch_size."""
    param_offload: bool
    """Keep weights in host memory while they are not used; for the optimizer: layout.train.opt_offload."""
    gpu_memory_utilization: Annotated[float, Gt(0), Le(1)]
    """Share of the card that the generating program may take (verl's default: 0.5)."""
    cards_per_node: Annotated[Positive, NotInIdentity()]
    """Cards of one machine: launcher.cards_per_node."""
    ray_address: Annotated[str | None, NotInIdentity()]
    """HOST:PORT of an existing Ray cluster, which is left running; null: one is started for the run."""
    ray_dashboard_port: Annotated[Port | None, NotInIdentity()]
    """Port of the dashboard of a cluster that is started; null: a free one."""
    ray_options: Annotated[tuple[str, ...], NotInIdentity()]
    """More options of every `ray start`, for example [--num-cpus=640]."""
    ray_wait_timeout_s: Annotated[PositiveFloat, NotInIdentity()]
    """Time limit until all NPUs are registered."""
    upstream: UpstreamKeys
    """Keys of verl's ppo_trainer configuration that grpoflow does not model."""


SETTINGS = VerlEngine
