"""What the job of a stage needs: nodes of Slurm or Ray, and Ray's resources (launcher.ray)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launch.nodes.run import nodes_of
from pipeline.config.sections import Config
from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from stages.base.graph import Stage

RESOURCES = {"cpu": "CPU", "cuda": "GPU", "gpu": "GPU"}
"""Device of an engine -> the name under which Ray counts it; others are NPUs (ray/_private/accelerators)."""
CARDS = ("NPU", "GPU")


def nodes(stage: Stage, config: Config) -> int:
    """Return the number of nodes of a stage's job; the workers of a driver are on nodes of their own."""
    if stage.program is None or (config.launcher.name == "ray" and is_driver(stage, config)):
        return 1
    return len(nodes_of(stage.workers, config.launcher))


def resources(stage: Stage, config: Config) -> dict[str, float]:
    """Return what the Ray job of a stage reserves: launcher.ray.STAGE, or what the stage uses.

    A driver reserves nothing. If it held cards or CPUs, its own workers on the same cluster might wait for
    them forever.
    """
    given = config.launcher.ray.get(stage.name)
    if given is not None:
        return dict(given)
    if is_driver(stage, config):
        return {}
    if not stage.computes:
        return {"CPU": 1}
    return {RESOURCES.get(_device(stage, config), "NPU"): stage.workers}


def is_driver(stage: Stage, config: Config) -> bool:
    """Return True if a stage only starts work on an existing Ray cluster (engine.ray_address)."""
    program = stage.program
    if program is None or program.section != "engine" or not stage.computes:
        return False
    return getattr(config.engine, "ray_address", None) is not None


def _device(stage: Stage, config: Config) -> str:
    """Return the device on which a stage computes, in lower case."""
    engine: Any = config.engine
    if stage.program is None and engine.name != "local":
        return "cpu"  # the embedded decoder answers for an outside engine
    return str(getattr(engine, "device_target", getattr(engine, "device", "npu"))).lower()


def problems(plan: Plan) -> Iterator[Problem]:
    """Yield problems of the requested stages that run as Ray jobs."""
    config, launcher = plan.config, plan.config.launcher
    if launcher.name != "ray":
        return
    for spec in plan.requested:
        stage = spec.stage
        if not launcher.runs_as_job(stage.name):
            continue
        if (count := nodes(stage, config)) > 1:
            rule = f"{stage.name} needs {count} nodes of launcher.cards_per_node={launcher.cards_per_node} "
            rule += "cards, and a Ray job runs on one"
            remedy = "choose launcher=slurm or launcher=ssh"
            if hasattr(config.engine, "ray_address"):
                remedy = f"let its workers use the cluster with engine.ray_address=HOST:PORT, or {remedy}"
            yield Problem("cards", stage.workers, rule, remedy, "ours: pipeline/plan/job_resources.py")
        held = [name for name in CARDS if (launcher.ray.get(stage.name) or {}).get(name)]
        if held and is_driver(stage, config):
            rule = f"would hold {held[0]}s that the workers of engine.ray_address wait for"
            yield Problem(
                f"launcher.ray.{stage.name}.{held[0]}",
                (launcher.ray[stage.name] or {})[held[0]],
                rule,
                "leave it out: the workers reserve their cards themselves",
                "ours: pipeline/plan/job_resources.py",
            )
