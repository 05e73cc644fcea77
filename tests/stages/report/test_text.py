import unicodedata

import pytest

from stages.report.text import figure, neutral

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
