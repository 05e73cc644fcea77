"""When things run: composed by Hydra, ordered by Luigi, remembered by the artifact store.

`luigi --module pipeline RunGRPO` imports this package, which therefore registers the tasks.
"""

from pipeline.tasks import RunGRPO

__all__ = ["RunGRPO"]
