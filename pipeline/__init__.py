"""Orchestration: Hydra composes the configuration, Luigi orders the stages, the store caches artifacts.

`luigi --module pipeline RunGRPO` imports this package, which then registers the tasks. Commands that
start nothing (plan, show, ...) import it without Luigi, since importing Luigi takes longer than they run.
"""

import gc
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from stages import own_packages

del sys.path[0]
own_packages.install()  # before any other import of grpoflow's packages
from stages.catalog import STAGES  # noqa: E402

__all__ = ["RunGRPO", *(stage.task_name for stage in STAGES.values())]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pipeline import tasks

        return getattr(tasks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "luigi" in sys.modules:
    gc.freeze()  # excludes Luigi's modules from garbage collection, which would be slow
    gc.disable()
    import pipeline.tasks  # noqa: F401

    gc.enable()
