"""Both READMEs say the same: sections, commands, pictures; and what they type is understood."""

import re
import shlex
import struct
from pathlib import Path

import pytest

from pipeline.cli import make_parser

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README_CN.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[str]:
    """Fenced blocks without their comments."""
    found = [re.sub(r"[ \t]+#.*$", "", body, flags=re.MULTILINE) for _, body in FENCE.findall(text)]
    return [re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE) for body in found]


def sections(text: str) -> list[str]:
    """The text cut at its headings."""
    return re.split(r"^#+ ", FENCE.sub("", text), flags=re.MULTILINE)


def test_the_same_sections_in_the_same_order() -> None:
    levels = [re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE) for text in (ENGLISH, CHINESE)]
    assert levels[0] == levels[1] and len(levels[0]) > 6


def test_the_same_commands_in_the_same_blocks() -> None:
    assert blocks(ENGLISH) == blocks(CHINESE)
    assert len(blocks(ENGLISH)) > 5


def test_each_section_names_the_same_keys_and_has_as_many_rows_and_points() -> None:
    for english, chinese in zip(sections(ENGLISH), sections(CHINESE), strict=True):
        told = [set(re.findall(r"`([^`]+)`", re.sub(r"\s*\n\s*", " ", text))) for text in (english, chinese)]
        assert told[0] == told[1], english[:60]
        for mark in (r"^\|", r"^- ", r"^\d+\. ", r"^    \S", r"!\["):
            count = [len(re.findall(mark, text, re.MULTILINE)) for text in (english, chinese)]
            assert count[0] == count[1], (mark, english[:60])


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_pictures_and_links_lead_somewhere(text: str) -> None:
    places = [place for place in re.findall(r"\]\(([^)]+)\)", text) if "://" not in place]
    assert len(places) >= 2
    assert all((ROOT / place).exists() for place in places)
    assert all((ROOT / place).stat().st_size < 300_000 for place in places)


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_the_pages_that_runs_and_sweeps_leave_are_shown(text: str) -> None:
    pictures = re.findall(r"^!\[(.{15,})\]\((docs/[^)]+\.png)\)$", text, re.MULTILINE)
    assert [place for _, place in pictures] == ["docs/report.png", "docs/sweep.png"]
    for _, place in pictures:
        data = (ROOT / place).read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", data[16:24])
        assert width == 960 and height > 600


def test_every_command_of_the_readme_is_one() -> None:
    typed = [line for block in blocks(ENGLISH) for line in block.replace("\\\n", " ").splitlines()]
    commands = [shlex.split(re.sub(r"[\[\]]", " ", line)) for line in typed if line.startswith("grpoflow ")]
    assert len(commands) > 25
    parser = make_parser()
    for command in commands:
        _, rest = parser.parse_known_args([word for word in command[1:] if word != "…"])
        assert all("=" in word for word in rest), command
