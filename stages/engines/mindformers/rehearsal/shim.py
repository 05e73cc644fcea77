"""Additions of a rehearsal to processes of mindrlhf and mindformers: code on PYTHONPATH, known answers."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stages.engines import rehearsal

ON_PATH = Path(__file__).with_name("on_path")


def environment(answers: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return engine.env of a rehearsal; `answers` is the file of `write_answers`.

    If Python must not write bytecode, each of many processes would compile MindSpore's modules again; theirs
    goes next to `answers`.
    """
    added = {rehearsal.VARIABLE: str(answers.absolute())}
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        cache = answers.absolute().parent / "pyc"
        added |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache)}
    return rehearsal.environment(ON_PATH, variables, **added)


def write_answers(file: Path, answers: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
    """Write pairs of prompt ids and completion ids, which vLLM's replacement returns."""
    pairs = [[list(prompt), list(completion)] for prompt, completion in answers]
    file.write_text(json.dumps({"answers": pairs}), encoding="utf-8")
