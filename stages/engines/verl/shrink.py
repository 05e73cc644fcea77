"""The recipe of a rehearsal of engine=verl: FSDP2 and transformers on a CPU (stages/engines/small_run.py)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines import small_run

CALL_TOKENS = 128
"""Upper limit of max_tokens with rollout.tools: a call with its answer must fit (agent.py, check)."""


def shrink(config: Mapping[str, Any], model: Path, workers: int) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal; arguments as in small_run.shrink."""
    small = small_run.shrink(config, model, workers)
    small["layout"]["train"] |= {"opt_offload": False}
    engine = small["engine"]
    if engine["strategy"] == "megatron":
        engine |= {"strategy": "fsdp2", "upstream": {}}  # its keys may be Megatron's
    engine |= {"device": "cpu", "rollout": "transformers", "deterministic": False, "param_offload": False}
    engine |= {"cards_per_node": small["cards"]}
    if small["rollout"]["tools"]:
        small["rollout"]["max_tokens"] = min(config["rollout"]["max_tokens"], CALL_TOKENS)
    return small
