"""English and Chinese pages have the same structure, and their links work."""

import re

import pytest

from tests.documents import FENCE, ROOT, commands, pairs

PAIRS = pairs()


def read(file):
    return file.read_text(encoding="utf-8")


def sections(text):
    """Split the text at its headings."""
    return re.split(r"^#+ ", FENCE.sub("", text), flags=re.MULTILINE)


def shapes(text):
    """Count table rows, list items, steps, indented lines and pictures per section."""
    marks = (r"^\|", r"^- ", r"^\d+\. ", r"^    \S", r"!\[")
    return [
        tuple(len(re.findall(mark, section, re.MULTILINE)) for mark in marks) for section in sections(text)
    ]


@pytest.mark.parametrize("name", PAIRS)
def test_english_and_chinese_have_the_same_commands_and_shape(name):
    english, chinese = map(read, PAIRS[name])
    typed = [
        [(command.text, command.mark) for command in commands(name, text)] for text in (english, chinese)
    ]
    assert typed[0] == typed[1]
    generated = [re.findall(r"^<!-- generated: \w+ -->$", text, re.MULTILINE) for text in (english, chinese)]
    assert generated[0] == generated[1]
    levels = [re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE) for text in (english, chinese)]
    assert levels[0] == levels[1]
    for before, after, title in zip(shapes(english), shapes(chinese), sections(english), strict=True):
        assert before == after, title[:60]


def test_both_readmes_name_the_same_keys():
    for english, chinese in zip(*(sections(read(file)) for file in PAIRS["README.md"]), strict=True):
        keys = [set(re.findall(r"`([^`]+)`", re.sub(r"\s*\n\s*", " ", text))) for text in (english, chinese)]
        assert keys[0] == keys[1], english[:60]
    assert all(len(read(file).splitlines()) <= 150 for file in PAIRS["README.md"])


@pytest.mark.parametrize("file", [page for pair in PAIRS.values() for page in pair], ids=str)
def test_links_exist_and_pictures_are_small(file):
    links = re.findall(r"\]\(([^)]+)\)", FENCE.sub("", read(file)))
    for link in links:
        if "://" in link:
            assert re.fullmatch(r"https://[\w.-]+\.\w+(/\S*)?", link)
        elif not link.startswith("#"):
            target = file.parent / link.partition("#")[0]
            assert target.exists(), link
            assert not link.endswith(".png") or target.stat().st_size < 300_000


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
