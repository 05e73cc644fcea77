import unicodedata

import pytest

from stages.report.text import duration, figure, neutral, number, percent, shorten, size

BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_neutral_leaves_no_control_or_direction_character_of_all_unicode():
    shown = neutral("".join(chr(code) for code in range(0x110000)))
    left = {
        c
        for c in set(shown)
        if unicodedata.bidirectional(c) in BIDI or unicodedata.category(c) in ("Cc", "Cs")
    }
    assert left == {"\t", "\n"}
    shown.encode("utf-8")


@pytest.mark.parametrize("text", ["#### 7", "中文 ñ é 👩‍👩‍👧 שלום مرحبا", "a\tb\nc", "x² ≤ 3"])
def test_neutral_keeps_ordinary_text(text):
    assert neutral(text) == text


def test_neutral_shows_what_was_there():
    assert neutral("a\x00b\x1b\x7f\u202e\ud800") == "a␀b␛␡‹U+202E›‹U+D800›"
    assert neutral("a\r\nb\rc") == "a\nb␍c"
    assert neutral("e" + "\u0301" * 50) == "e" + "\u0301" * 3


def test_shorten_counts_what_is_left_out():
    text = "".join(str(i % 10) for i in range(1000))
    assert shorten(text, 1000) == text
    short = shorten(text, 100)
    assert short.startswith(text[:75]) and short.endswith(text[-25:])
    assert "900 characters left out" in short


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (12345, "12,345"), (0.5, "0.500"), (-0.0123, "−0.0123"), (3e-5, "3.00e-5"),
     (1234.5, "1,234"), (99.96, "100.0"), (-2, "−2"), (10_000_000, "10,000,000"),
     (-123_456_789, "−123,456,789"),
     (float("nan"), "–"), (None, "–"), (True, "–"),
     ("7", "–"), (1e300, "1e+300")],
)  # fmt: skip
def test_figure(value, shown):
    assert figure(value) == shown


def test_other_formats():
    assert [duration(s) for s in (0.2, 3.14, 42.4, 59.7, 187, 7500, -1, None)] == [
        "0.20 s", "3.1 s", "42 s", "1 min 00 s", "3 min 07 s", "2 h 05 min", "–", "–",
    ]  # fmt: skip
    shown = [size(n) for n in (0, 1023, 1536, 3 * 2**30, 2**50)]
    assert shown == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB", "1024.0 TiB"]
    assert percent(0.5125) == "51.2 %" and percent(-0.1) == "−10.0 %" and percent("x") == "–"
    assert number(10**400) is None
