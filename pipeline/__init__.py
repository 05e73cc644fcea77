"""When things run: composed by Hydra, ordered by Luigi, remembered by the artifact store.

`luigi --module pipeline RunGRPO` imports this package, which then registers the tasks. Commands that
start nothing (plan, show, ...) import it without Luigi, which takes longer to import than they run.
"""

import gc
import sys
from typing import Any

__all__ = [
    "Convert", "Evaluate", "Export", "Fetch", "FetchDataset", "Grpo", "Report", "RunGRPO", "Sft", "Split",
    "Strategy", "Tokenize",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pipeline import tasks

        return getattr(tasks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "luigi" in sys.modules:
    gc.freeze()  # what Luigi has imported is no garbage, and takes long to look through
    gc.disable()
    import pipeline.tasks  # noqa: F401

    gc.enable()
