"""The Ascend cards of this machine, as npu-smi shows them.

This project never saw npu-smi's output on a card. What is read here is the table that users of vLLM-Ascend
paste into its bug reports (npu-smi 24.1 to 25.5): two rows for each chip, the first with its name, the second
with its memory as `used / total`. A machine with 910_93 chips calls them Ascend910 and has a column Phy-ID.
Another table gives the verdict unknown, never ok.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass

from launch.machine.checks import Check

_NAME = re.compile(r"\d+\s+([A-Za-z0-9_-]*[A-Za-z_][A-Za-z0-9_-]*)")
_CHIP = re.compile(r"\d+(\s+\d+)?")
_SHARE = re.compile(r"(\d+)\s*/\s*(\d+)")
_WORKS = re.compile(r"(Ascend)?910(B\d\w*|_93\w*)")


@dataclass(frozen=True)
class Card:
    """One chip: what a worker occupies."""

    name: str
    """910B3, 910_93, 310P3, ...; 910 where the table does not tell which."""
    memory_mib: int | None
    """Its HBM; None: the table shows none."""


@dataclass(frozen=True)
class Seen:
    """What npu-smi said, asked once for all engines."""

    cards: tuple[Card, ...] = ()
    count: int | None = None
    """Cards; None: unknown."""
    trouble: Check | None = None
    """Why nothing can be said of them."""


def look() -> Seen:
    """Ask npu-smi."""
    tool = shutil.which("npu-smi")
    if tool is None:
        return Seen(trouble=Check("devices", "problem", "npu-smi not found", "Ascend cards and their driver"))
    try:
        cards = read(_said(tool, "info"))
        if cards:
            return Seen(cards, len(cards))
        counted = re.search(r"Total Count\s*:\s*(\d+)", _said(tool, "info", "-l"))
    except (OSError, subprocess.SubprocessError) as error:
        return Seen(trouble=Check("devices", "problem", f"npu-smi: {error}", "mend the driver"))
    if counted is None:
        reason = "npu-smi info: no cards, or a table that is not known here"
        return Seen(trouble=Check("devices", "unknown", reason, "run npu-smi info"))
    return Seen((), int(counted[1]))


def read(table: str) -> tuple[Card, ...]:
    """The chips in the table of `npu-smi info`; none where it has no such rows."""
    cards: list[Card] = []
    name = None
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 3:
            continue
        if named := _NAME.fullmatch(cells[0]):
            name = named[1]
        elif name is not None and (chip := _CHIP.fullmatch(cells[0])):
            shares = _SHARE.findall(cells[2]) if "HBM-Usage" in table else []
            total = int(shares[-1][1]) if shares else 0
            twin = chip[1] is not None and name.removeprefix("Ascend") == "910"
            cards.append(Card("910_93" if twin else name, total or None))
            name = None
    return tuple(cards)


def checks(seen: Seen, needed: int, memory_gib: int | None, only_910: bool) -> list[Check]:
    """Number, kind and memory of the cards, against what an engine needs."""
    if seen.trouble is not None or seen.count is None:
        trouble = seen.trouble or Check("devices", "unknown", "not counted")
        return [Check("devices", trouble.status, trouble.found, f"{needed} cards: {trouble.remedy}")]
    enough = seen.count >= needed
    count = Check("devices", "ok" if enough else "problem", f"{seen.count}")
    results = [count if enough else Check(count.name, count.status, count.found, f"{needed} are needed")]
    results.append(_kind(seen.cards, only_910))
    if memory_gib is not None:
        results.append(_memory(seen.cards, memory_gib))
    return results


def _kind(cards: tuple[Card, ...], only_910: bool) -> Check:
    names = sorted({card.name for card in cards})
    if not names:
        return Check("chip", "unknown", "npu-smi info shows no name", "must be 910B or 910_93")
    others = [name for name in names if not _WORKS.fullmatch(name)]
    if not others:
        return Check("chip", "ok", ", ".join(names))
    rule = "runs on 910B1 to 910B4 (Atlas A2) and 910_93 (Atlas A3) only"
    # 910 and 910B without a number are names that older tools give several chips
    sure = only_910 and not set(others) <= {"910", "910B", "Ascend910", "Ascend910B"}
    meaning = f"it {rule}" if only_910 else f"upstream {rule}, as far as known"
    return Check("chip", "problem" if sure else "unknown", ", ".join(names), meaning)


def _memory(cards: tuple[Card, ...], wanted: int) -> Check:
    sizes = [card.memory_mib for card in cards if card.memory_mib is not None]
    if not sizes or len(sizes) < len(cards):
        return Check("card memory", "unknown", "npu-smi info shows none", f"{wanted} GiB are configured")
    have = min(sizes) / 1024
    if have >= wanted:
        return Check("card memory", "ok", f"{have:.0f} GiB")
    remedy = f"engine.device_memory_gib={wanted} must leave some of it free: set it below {have:.0f}"
    return Check("card memory", "problem", f"{have:.0f} GiB", remedy)


def _said(tool: str, *arguments: str) -> str:
    return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=30).stdout
