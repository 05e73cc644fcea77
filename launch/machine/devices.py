"""Ascend cards of this machine, read from the output of npu-smi.

The parser was written from tables in bug reports of vLLM-Ascend (npu-smi 24.1 to 25.5), never from a card:
two rows per chip, the first with its name, the second with its memory as `used / total`. A machine with
910_93 chips names them Ascend910 and has a column Phy-ID. Another table gives the verdict unknown, never ok.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass

from launch.machine.checks import Check, required

_NAME = re.compile(r"\d+\s+([A-Za-z0-9_-]*[A-Za-z_][A-Za-z0-9_-]*)")
_CHIP = re.compile(r"\d+(\s+\d+)?")
_MEMORY = re.compile(r"(\d+)\s*/\s*(\d+)")
_SUPPORTED = re.compile(r"(Ascend)?910(B\d\w*|_93\w*)")
_AMBIGUOUS = {"910", "910B", "Ascend910", "Ascend910B"}
"""Names that older tools use for several chips."""


@dataclass(frozen=True)
class Card:
    """One chip; a worker occupies one."""

    name: str
    """910B3, 910_93, 310P3, ...; 910 if the table is ambiguous."""
    memory_mib: int | None
    """HBM; None if the table does not show it."""


@dataclass(frozen=True)
class Seen:
    """Cards of this machine, or the reason why they are unknown."""

    cards: tuple[Card, ...] = ()
    count: int | None = None
    """Number of cards; None if unknown."""
    trouble: Check | None = None


def look() -> Seen:
    """Run npu-smi and read its table."""
    tool = shutil.which("npu-smi")
    if tool is None:
        return Seen(trouble=Check("devices", "problem", "npu-smi not found", "Ascend cards and their driver"))
    try:
        cards = read(_output(tool, "info"))
        if cards:
            return Seen(cards, len(cards))
        count = re.search(r"Total Count\s*:\s*(\d+)", _output(tool, "info", "-l"))
    except (OSError, subprocess.SubprocessError) as error:
        return Seen(trouble=Check("devices", "problem", f"npu-smi: {error}", "repair the driver"))
    if count is None:
        reason = "npu-smi info: no cards, or a table that is not known here"
        return Seen(trouble=Check("devices", "unknown", reason, "run npu-smi info"))
    return Seen((), int(count[1]))


def read(table: str) -> tuple[Card, ...]:
    """Return the chips in the table of `npu-smi info`; empty for an unknown table."""
    cards: list[Card] = []
    name = None
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 3:
            continue
        if match := _NAME.fullmatch(cells[0]):
            name = match[1]
        elif name is not None and (chip := _CHIP.fullmatch(cells[0])):
            memory = _MEMORY.findall(cells[2]) if "HBM-Usage" in table else []
            is_a3 = chip[1] is not None and name.removeprefix("Ascend") == "910"
            cards.append(Card("910_93" if is_a3 else name, int(memory[-1][1]) or None if memory else None))
            name = None
    return tuple(cards)


def checks(seen: Seen, needed: int, memory_gib: int | None, only_910: bool) -> list[Check]:
    """Compare number, kind and memory of the cards with the needs of an engine."""
    if seen.trouble is not None:
        remedy = f"{needed} cards: {seen.trouble.remedy}"
        return [Check("devices", seen.trouble.status, seen.trouble.found, remedy)]
    assert seen.count is not None
    results = [required("devices", seen.count >= needed, f"{seen.count}", f"{needed} are needed")]
    results.append(_kind(seen.cards, only_910))
    if memory_gib is not None:
        results.append(_memory(seen.cards, memory_gib))
    return results


def _kind(cards: tuple[Card, ...], only_910: bool) -> Check:
    names = sorted({card.name for card in cards})
    if not names:
        return Check("chip", "unknown", "npu-smi info shows no name", "must be 910B or 910_93")
    unsupported = {name for name in names if not _SUPPORTED.fullmatch(name)}
    if not unsupported:
        return Check("chip", "ok", ", ".join(names))
    rule = "runs on 910B1 to 910B4 (Atlas A2) and 910_93 (Atlas A3) only"
    remedy = f"it {rule}" if only_910 else f"upstream {rule}, as far as known"
    certain = only_910 and not unsupported <= _AMBIGUOUS
    return Check("chip", "problem" if certain else "unknown", ", ".join(names), remedy)


def _memory(cards: tuple[Card, ...], needed_gib: int) -> Check:
    sizes = [card.memory_mib for card in cards if card.memory_mib is not None]
    if not sizes or len(sizes) < len(cards):
        return Check("card memory", "unknown", "npu-smi info shows none", f"{needed_gib} GiB are configured")
    gib = min(sizes) / 1024
    remedy = f"engine.device_memory_gib={needed_gib} must leave some of it free: set it below {gib:.0f}"
    return required("card memory", gib >= needed_gib, f"{gib:.0f} GiB", remedy)


def _output(tool: str, *arguments: str) -> str:
    return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=30).stdout
