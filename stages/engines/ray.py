"""Settings and job of engines whose program trains and generates on the cards of a Ray cluster."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from launch.nodes.start import Ray
from stages.base.bounds import Positive, PositiveFloat
from stages.base.identity import NotInIdentity
from stages.engines.config import OutsideEngine
from stages.engines.job import GrpoJob

Port = Annotated[int, Ge(1024), Le(65535)]


@dataclass(frozen=True)
class RayEngine(OutsideEngine):
    """Settings of an engine on a Ray cluster."""

    mini_batch_size: Positive | None
    """Prompts per optimizer update; null: train.prompts_per_step, one update per iteration."""
    micro_batch_size: Positive
    """Completions per card and forward-backward pass."""
    forward_micro_batch_size: Positive | None
    """Completions per card and pass without gradients; null: micro_batch_size."""
    gpu_memory_utilization: Annotated[float, Gt(0), Le(1)]
    """Share of the card that the generating program may take."""
    ray_address: Annotated[str | None, NotInIdentity()]
    """HOST:PORT of an existing Ray cluster, which is left running; null: one is started for the run on the
    launcher's machines, and stopped after it."""
    ray_dashboard_port: Annotated[Port | None, NotInIdentity()]
    """Port of the dashboard of a cluster that is started; null: a free one."""
    ray_options: Annotated[tuple[str, ...], NotInIdentity()]
    """More options of every `ray start`, for example [--num-cpus=640]."""
    ray_wait_timeout_s: Annotated[PositiveFloat, NotInIdentity()]
    """Time limit until all cards are registered."""

    def cluster(self, *options: str, resource: str = "NPU") -> Ray:
        """Return the cluster; the user's options of `ray start` override `options`.

        `resource`: the name under which Ray counts the cards.
        """
        return Ray(
            self.ray_address,
            self.ray_dashboard_port,
            (*options, *self.ray_options),
            self.ray_wait_timeout_s,
            resource,
        )


@dataclass(frozen=True)
class RayJob(GrpoJob):
    """Sections that a run is rendered from, with the batches of such an engine."""

    engine: RayEngine

    @property
    def mini_batch_size(self) -> int:
        """Prompts per optimizer update."""
        return self.engine.mini_batch_size or self.train.prompts_per_step

    @property
    def forward_micro_batch_size(self) -> int:
        """Completions per card and pass without gradients."""
        return self.engine.forward_micro_batch_size or self.engine.micro_batch_size
