"""Completions that MindSpeed-RL's scoring processes say in the log: one per batch that they score.

Question, answer and label stand between lines of equal signs, each after a line of its own that begins
with `>>>>>>>>>>`; they may have many lines. Ray puts the process before each.
Source: Ascend/MindSpeed-RL at 667a547 and 05a90d7, mindspeed_rl/models/rule_verifier.py
(compute_verifier_score) and mindspeed_rl/utils/loggers.py.
"""

import re
from dataclasses import dataclass, field

from stages.engines.mindspeed_rl.logs import COLOURS

_PROCESS = re.compile(r"\(\w+ (pid=\d+[^)]*)\) ?(.*)")
_CALL = re.compile(r".*?\[\d{4}-\d\d-\d\d [^\]]*\] INFO (.*)")
_MARK = re.compile(r">{10} (.+?):?\s*")
_END = re.compile(r"={50}\s*")
_NAMES = {"User": "prompt", "Assistant": "completion", "labels": "solution"}


@dataclass
class _Process:
    """Lines that one process has printed of the current sample."""

    part: str | None = None
    waits: bool = False
    """A mark was the last thing said: its own line breaks are no text."""
    lines: dict[str, list[str]] = field(default_factory=dict)


class SampleReader:
    """Puts samples together from the lines of several processes."""

    def __init__(self) -> None:
        self._processes: dict[str, _Process] = {}

    def read(self, line: str) -> dict[str, str] | None:
        """Take in one line; the sample that it ends, else None."""
        match = _PROCESS.fullmatch(COLOURS.sub("", line).rstrip("\r\n"))
        if match is None:
            return None
        process = self._processes.setdefault(match[1], _Process())
        call = _CALL.fullmatch(match[2])
        if call is None:
            if process.part is not None and not process.waits:
                process.lines[process.part].append(match[2])
            return None
        return self._called(process, call[1])

    def _called(self, process: _Process, text: str) -> dict[str, str] | None:
        if _END.fullmatch(text):
            parts = {name: "\n".join(lines).strip() for name, lines in process.lines.items()}
            process.part, process.lines = None, {}
            return parts if {"prompt", "completion"} <= parts.keys() else None
        if mark := _MARK.fullmatch(text):
            process.part, process.waits = _NAMES.get(mark[1]), True
            if process.part is not None:
                process.lines[process.part] = []
        elif process.part is not None:
            if not process.waits:  # another message of the same process: the text is over
                process.part = None
                return None
            process.waits = False
            process.lines[process.part].append(text)
        return None
