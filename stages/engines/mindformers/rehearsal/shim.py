"""What a rehearsal adds to the processes of mindrlhf and mindformers: a directory on PYTHONPATH, a script."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stages.engines import rehearsal

ON_PATH = Path(__file__).with_name("on_path")
Ids = Sequence[int]


def environment(script: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return engine.env of a rehearsal.

    Where Python is told to write no bytecode, each of many processes would compile MindSpore's modules again;
    theirs goes beside the script.
    """
    added = {rehearsal.VARIABLE: str(script.absolute())}
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        cache = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(script.absolute().parent / "pyc")}
        added |= cache
    return rehearsal.environment(ON_PATH, variables, **added)


def write_script(script: Path, answers: Iterable[tuple[Ids, Ids]]) -> None:
    """Say how vLLM's replacement answers."""
    pairs = [[list(prompt), list(completion)] for prompt, completion in answers]
    script.write_text(json.dumps({"answers": pairs}), encoding="utf-8")
