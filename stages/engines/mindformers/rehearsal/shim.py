"""What a rehearsal adds to the processes of mindrlhf and mindformers: a directory on PYTHONPATH, a script."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stages.engines import rehearsal

ON_PATH = Path(__file__).with_name("on_path")
Ids = Sequence[int]


def environment(script: Path, own: Mapping[str, str]) -> dict[str, str]:
    """engine.env of a rehearsal.

    Args:
        script: file that `write_script` writes, which the variable names; it may come later.
        own: the recipe's engine.env.
    """
    return rehearsal.environment(ON_PATH, own, **{rehearsal.VARIABLE: str(script.absolute())})


def write_script(script: Path, answers: Iterable[tuple[Ids, Ids]]) -> None:
    """Say how vLLM's replacement answers.

    Args:
        script: the file.
        answers: ids of a prompt, and of a completion for every other time that it is asked.
    """
    pairs = [[list(prompt), list(completion)] for prompt, completion in answers]
    script.write_text(json.dumps({"answers": pairs}), encoding="utf-8")
