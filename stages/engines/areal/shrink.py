"""The recipe of a rehearsal of engine=areal: FSDP2 and grpoflow's server (stages/engines/small_run.py)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines import small_run

SERVER_LOG = "GRPOFLOW_AREAL_SERVER_LOG"
"""Variable with the file to which the server writes digests (programs/grpoflow_areal/cpu_server.py)."""


def shrink(config: Mapping[str, Any], model: Path, workers: int, log: Path) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal; arguments as in small_run.shrink.

    Mode, staleness and correction stay those of the run. The server writes its log to `log`.
    """
    small = small_run.shrink(config, model, workers)
    engine = small["engine"]
    engine |= {"device": "cpu", "mini_batch_size": None, "rollout_cards": 1, "launcher": "local"}
    engine |= {"cards_per_node": workers + 1, "env": {**engine["env"], SERVER_LOG: str(log)}}
    return small
