"""README and every page say the same in English and Chinese, and lead somewhere."""

import re
import struct

import pytest

from tests.documents import FENCE, ROOT, commands, pairs

PAIRS = pairs()


def read(file):
    return file.read_text(encoding="utf-8")


def sections(text):
    """The text cut at its headings."""
    return re.split(r"^#+ ", FENCE.sub("", text), flags=re.MULTILINE)


def shapes(text):
    """Per section: rows of tables, points, steps, indented lines and pictures."""
    marks = (r"^\|", r"^- ", r"^\d+\. ", r"^    \S", r"!\[")
    return [tuple(len(re.findall(mark, one, re.MULTILINE)) for mark in marks) for one in sections(text)]


@pytest.mark.parametrize("name", PAIRS)
def test_english_and_chinese_have_the_same_commands_and_shape(name):
    english, chinese = map(read, PAIRS[name])
    same = [[(one.text, one.mark) for one in commands(name, text)] for text in (english, chinese)]
    assert same[0] == same[1]
    made = [re.findall(r"^<!-- generated: \w+ -->$", text, re.MULTILINE) for text in (english, chinese)]
    assert made[0] == made[1]
    levels = [re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE) for text in (english, chinese)]
    assert levels[0] == levels[1]
    for before, after, title in zip(shapes(english), shapes(chinese), sections(english), strict=True):
        assert before == after, title[:60]


def test_both_readmes_name_the_same_keys():
    for english, chinese in zip(*(sections(read(file)) for file in PAIRS["README.md"]), strict=True):
        told = [set(re.findall(r"`([^`]+)`", re.sub(r"\s*\n\s*", " ", text))) for text in (english, chinese)]
        assert told[0] == told[1], english[:60]
    assert all(len(read(file).splitlines()) <= 150 for file in PAIRS["README.md"])


@pytest.mark.parametrize("file", [one for pair in PAIRS.values() for one in pair], ids=str)
def test_links_lead_somewhere_and_pictures_are_small(file):
    places = re.findall(r"\]\(([^)]+)\)", FENCE.sub("", read(file)))
    for place in places:
        if "://" in place:
            assert re.fullmatch(r"https://[\w.-]+\.\w+(/\S*)?", place)
        elif not place.startswith("#"):
            target = file.parent / place.partition("#")[0]
            assert target.exists(), place
            assert not place.endswith(".png") or target.stat().st_size < 300_000


@pytest.mark.parametrize("name", ["report.png", "sweep.png"])
def test_the_pages_that_runs_and_sweeps_leave_are_shown(name):
    shown = [re.findall(rf"^!\[.{{10,}}\]\((\S*{name})\)$", read(f), re.M) for p in PAIRS.values() for f in p]
    assert sum(map(len, shown)) == 2, "once in each language"
    data = (ROOT / "docs" / name).read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert width == 960 and height > 600


@pytest.mark.parametrize(("name", "least"), [("README.md", 5), ("evidence.md", 15), ("security.md", 11)])
def test_each_row_and_each_guarantee_names_tests_that_exist(name, least):
    for file in PAIRS[name]:
        text = read(file)
        if name == "security.md":
            entries = re.split(r"^- ", sections(text)[2], flags=re.MULTILINE)[1:]
        else:
            table = next(part for part in sections(text) if "tests/" in part)
            entries = re.findall(r"^\| .*\|$", table, re.MULTILINE)[1:]
        assert len(entries) >= least
        for entry in entries:
            named = re.findall(r"tests/[\w/]+\.py", entry)
            assert named, entry[:60]
            assert [test for test in named if not (ROOT / test).is_file()] == []
