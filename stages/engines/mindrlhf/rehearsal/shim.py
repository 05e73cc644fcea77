"""What a rehearsal adds to the processes of mindrlhf: a directory on PYTHONPATH, a variable, a script."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ON_PATH = Path(__file__).with_name("on_path")
VARIABLE = "GRPOFLOW_REHEARSAL"
"""Names the script; where it is not set, nothing in ON_PATH does anything."""
Ids = Sequence[int]


def environment(script: Path, own: Mapping[str, str]) -> dict[str, str]:
    """engine.env of a rehearsal.

    Args:
        script: file that `write_script` writes; it may come later.
        own: the recipe's engine.env.
    """
    path = [str(ON_PATH), *filter(None, [own.get("PYTHONPATH")])]
    return {**own, "PYTHONPATH": os.pathsep.join(path), VARIABLE: str(script.absolute())}


def write_script(script: Path, answers: Iterable[tuple[Ids, Ids]]) -> None:
    """Say how vLLM's replacement answers.

    Args:
        script: the file.
        answers: ids of a prompt, and of a completion for every other time that it is asked.
    """
    pairs = [[list(prompt), list(completion)] for prompt, completion in answers]
    script.write_text(json.dumps({"answers": pairs}), encoding="utf-8")
