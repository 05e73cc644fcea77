"""When things run: composed by Hydra, ordered by Luigi, remembered by the artifact store.

`luigi --module pipeline RunGRPO` imports this package, which then registers the tasks. Commands that
start nothing (plan, show, ...) import it without Luigi, which takes longer to import than they run.
"""

import sys
from typing import Any

__all__ = ["RunGRPO"]


def __getattr__(name: str) -> Any:
    if name == "RunGRPO":
        from pipeline.tasks import RunGRPO

        return RunGRPO
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "luigi" in sys.modules:
    from pipeline.tasks import RunGRPO
