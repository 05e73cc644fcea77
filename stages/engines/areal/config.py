"""Settings of engine=areal that no other section holds. Defaults: conf/engine/areal.yaml."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from stages.base.bounds import NonNegative, Positive, PositiveFloat
from stages.base.identity import CheckoutDirectory, NotInIdentity
from stages.engines.config import UpstreamKeys
from stages.engines.ray import RayEngine

Contract = Literal["1.0.4", "ascend-v1.0.5"]


@dataclass(frozen=True)
class ArealEngine(RayEngine):
    """AReaL's GRPO (areal.PPOTrainer with its single controller)."""

    name: Literal["areal"]
    """areal: the package in the environment of engine.python."""
    sft: Annotated[Literal["off"], NotInIdentity()]
    """off: a warm start is model.path=DIR of an exported model."""
    areal_home: Annotated[str | None, CheckoutDirectory()]
    """A checkout of areal-project/AReaL that replaces the package areal in engine.python's environment; null:
    the package."""
    contract: Literal["auto", "1.0.4", "ascend-v1.0.5"]
    """Version of AReaL; auto: that of the checkout, or 1.0.4."""
    device: Literal["npu", "cpu"]
    """cpu: AReaL trains in float32, and grpoflow's server (stages/engines/areal/programs) generates; for
    small models."""
    mode: Literal["sync", "async"]
    """sync: each step trains on completions of the newest weights. async: generation goes on while the cards
    of training update the weights, and completions may be engine.staleness versions old."""
    staleness: NonNegative | None
    """Versions of the weights by which a completion may be older than those that train on it (AReaL's
    max_head_offpolicyness); null: 0 with mode=sync, 2 with mode=async."""
    partial_rollout: bool | None
    """Completions that a weight update interrupts go on with the new weights. AReaL always does so with
    mode=async; null: as engine.mode says."""
    rollout_cards: Positive | None
    """Cards that generate, besides those of layout.train; null: as many as layout.train has."""
    kl_in_reward: Annotated[float, Ge(0)]
    """Weight of the KL divergence from the fetched model, which AReaL subtracts from each token's reward
    (actor.kl_ctl, estimator k1). It has no KL term in the loss: train.beta stays 0."""
    micro_batch_tokens: Positive
    """Tokens of a card's forward-backward pass on NPUs; sequences are packed into it. On a CPU a pass has one
    sequence."""
    device_memory_gib: Annotated[Positive, NotInIdentity()]
    """Memory of a card (A2 and one die of A3: 64, of which the driver keeps some), for plan."""
    start_timeout_s: Annotated[PositiveFloat, NotInIdentity()]
    """Time limit until all workers are ready. AReaL itself waits forever for a worker that died."""
    request_timeout_s: Annotated[PositiveFloat | None, NotInIdentity()]
    """Seconds in which a prompt must get all its completions and their rewards; after them AReaL leaves the
    prompt out. null: AReaL's own limit, 3600."""
    cards_per_node: Annotated[Positive, NotInIdentity()]
    """Cards of one machine: launcher.cards_per_node."""
    launcher: Annotated[Literal["local", "ssh", "slurm", "ray"], NotInIdentity()]
    """Where workers run: launcher.name. AReaL's own scheduler starts them on this machine, Ray elsewhere.
    ray: on the machine of the stage, or on the cluster at ray_address."""
    upstream: UpstreamKeys
    """Keys of AReaL's GRPOConfig that grpoflow does not model."""


SETTINGS = ArealEngine
