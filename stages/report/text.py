"""Text and numbers for display; control characters in texts of models and users become visible."""

import datetime
import math
import re

from stages.base.files import shown_bytes
from stages.report.language import language, translate

# Characters that a browser obeys or hides: C0 and C1 controls (except tab and newline), bidirectional
# marks and overrides, invisible separators, tag characters, lone surrogates (which UTF-8 cannot encode)
# and noncharacters. ZWJ and ZWNJ are allowed: words and emoji need them.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
# Long stacks of combining marks, which would cover other parts of the page.
_STACKED = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{3})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)


def neutral(text: str) -> str:
    """Make every control and direction character visible (␀, ‹U+202E›).

    Carriage return + newline count as one newline.
    """
    return _STACKED.sub(r"\1", _UNSAFE.sub(_visible, text.replace("\r\n", "\n")))


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"‹U+{code:04X}›"


def shorten(text: str, limit: int) -> str:
    """Return the neutral text, shortened to about `limit` characters.

    Three quarters come from the start and one from the end, which contains the answer. Between them stands
    the number of characters left out.
    """
    safe = neutral(text)
    if len(safe) <= limit:
        return safe
    head, tail = limit * 3 // 4, limit // 4
    left_out = translate("{count} characters left out", count=f"{len(safe) - head - tail:,}")
    return f"{safe[:head]}\n[… {left_out} …]\n{safe[-tail:]}"


def number(value: object) -> float | None:
    """Return `value` as a finite float; None if it is anything else (text, bool, NaN, null)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def figure(value: object) -> str:
    """Format a number with three or four significant digits and grouped thousands; – if there is none."""
    rounded = number(value)
    if rounded is None:
        return "–"
    size = abs(rounded)
    if size >= 1e15:
        text = f"{rounded:.3g}"
    elif size >= 1000 or rounded == int(rounded):
        text = f"{round(rounded):,}"
    elif size >= 0.001:
        text = f"{rounded:.{max(0, 2 - math.floor(math.log10(size)))}f}"
    else:
        text = f"{rounded:.2e}".replace("e-0", "e-")
    return text.replace("-", "−", 1) if rounded < 0 else text


def percent(value: object) -> str:
    """Format a share (0 to 1) as a percentage with one decimal."""
    rounded = number(value)
    return "–" if rounded is None else f"{100 * rounded:.1f} %".replace("-", "−")


def duration(seconds: object) -> str:
    """Format seconds as 0.84 s, 42 s, 3 min 07 s or 2 h 05 min."""
    rounded = number(seconds)
    if rounded is None or rounded < 0:
        return "–"
    if rounded < 9.95:
        return translate("{s} s", s=f"{rounded:.1f}" if rounded >= 0.95 else f"{rounded:.2f}")
    total = round(rounded)
    if total < 60:
        return translate("{s} s", s=total)
    if total < 3600:
        return translate("{min} min {s} s", min=total // 60, s=f"{total % 60:02d}")
    return translate("{h} h {min} min", h=total // 3600, min=f"{total % 3600 // 60:02d}")


def moment(unix_s: float) -> str:
    """Format a point in time in UTC, so that a page does not depend on the time zone that renders it."""
    time = datetime.datetime.fromtimestamp(max(0.0, min(unix_s, 4e9)), tz=datetime.timezone.utc)
    if language() == "zh":
        return f"{time.year} 年 {time.month} 月 {time.day} 日 {time:%H:%M} UTC"
    return f"{time:%d %B %Y, %H:%M} UTC".lstrip("0")


def size(count: object) -> str:
    """Format bytes with a binary unit: 512 B, 3.2 MiB."""
    rounded = number(count)
    return "–" if rounded is None else shown_bytes(round(rounded))


def words(key: str) -> str:
    """Return a key as a phrase: `sequence_length_p95` becomes `sequence length p95`."""
    return key.replace("_", " ").strip()
