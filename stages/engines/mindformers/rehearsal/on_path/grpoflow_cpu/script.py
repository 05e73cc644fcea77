"""Known answers for generation, with which a random model sometimes earns a reward."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

FILE = "GRPOFLOW_REHEARSAL"
"""The variable that names the file."""
Ids = tuple[int, ...]


class Script:
    """The answers in a file: {"answers": [[prompt ids, completion ids], ...]}."""

    def __init__(self, file: Path, first: int) -> None:
        """Read the file, if it exists.

        A completion is replaced by the answer if its number, counted from 0 for each prompt, plus `first`
        (the replica's number) is even.
        """
        answers = json.loads(file.read_text(encoding="utf-8"))["answers"] if file.is_file() else []
        self.answers: dict[Ids, list[int]] = {tuple(prompt): completion for prompt, completion in answers}
        self.calls: Counter[Ids] = Counter()
        self.first = first

    def answer(self, prompt: list[int]) -> list[int] | None:
        """Return the known answer, or None if the model must generate this completion."""
        key = tuple(prompt)
        self.calls[key] += 1
        return self.answers.get(key) if (self.calls[key] + self.first) % 2 else None
