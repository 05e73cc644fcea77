r"""The reward `number`: 1.0 if the final answer of a completion is the same number as the ground truth.

Numbers are compared as exact fractions, not as text and without rounding: 18, 18.00, $18 and 36/2 are equal,
1/3 and 0.333 are not. A final answer that is not a single number, such as `3 or 4`, `(1, 2)`, `2\sqrt{3}` or
`5x`, equals nothing.

The final answer is what the last marker states: \boxed{x}, <answer>x</answer>, "#### x", "the answer is x" or
"Answer: x"; without a marker it is the last number. A thought, up to </think>, counts only if nothing follows
it. Units, currencies and percent signs are ignored, because ground truths of word problems leave them out: 5%
equals 5, and not 0.05. Hundred, thousand, million, billion and trillion are part of the number.

The time is linear in the length of the text. Numbers beyond MOST_DIGITS and LARGEST_EXPONENT equal nothing,
so that no completion can slow down a step.
"""

import functools
import re
from collections import deque
from collections.abc import Callable
from fractions import Fraction

MOST_DIGITS = 100
LARGEST_EXPONENT = 100
CONTEXT = 32
"""Characters on each side of a number that decide whether it stands alone."""
CLAUSE = 200
"""Characters after "answer is" or "####" in which the answer ends."""
THOUGHT_END = "</think>"

# Characters with a plain equivalent; spaces that separate thousands become U+2009.
FULL_WIDTH = {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)} | {"\uff0c": ", "}
PLAIN_CHARACTERS = str.maketrans(
    FULL_WIDTH
    | dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-")
    | dict.fromkeys("\u00a0\u202f", "\u2009")
    | dict.fromkeys("\u00b7\u22c5", "×")
    | dict.fromkeys("\u2044\u2215", "/")
    | {"\u3002": ". "}
)
VULGAR_FRACTIONS = {
    "¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5",
    "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
}  # fmt: skip
SUPERSCRIPTS = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")

# One number. Runs with wrong separators (12,34 and 1.2.3 and 5:30) match as a whole, and PLAIN refuses them.
RUN = r"(?:[1-9][0-9]{0,2}(?: [0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:[.,:'\u2009][0-9]+)*|\.[0-9]+)"
NUMBER = re.compile(
    r"(?<![0-9A-Za-z_])(?<![0-9][.,:'\u2009])(?<!\^)(?<!\^[-+])"  # not in H2O, x_1 and m^2
    r"(?:(?P<whole>[0-9]+) (?P<top>[0-9]+)/(?P<bottom>[0-9]+)(?![0-9.,/])"
    rf"|(?P<first>{RUN})"
    rf"(?:(?P<division>(?:\s?/\s?{RUN})+)"
    r"|[eE](?P<exponent>[-+]?[0-9]+)(?![0-9A-Za-z])"
    r"|\s?[×x*]\s?10\s?(?:\^|\*\*)\s?(?P<power>[-+]?[0-9]+)"
    r"|(?:\^|\*\*)\s?(?P<raised>[-+]?[0-9]+))?)"
)
PLAIN = re.compile(r"(?:[0-9]+|[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:[ \u2009][0-9]{3})+))?(?:\.[0-9]+)?")
SCALES = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9,
}  # fmt: skip
SCALE = re.compile(r"(?:\s?(hundred|thousand|million|billion|trillion)|([kKMB]))(?![A-Za-z])")

# What stands before a number, up to it, and what follows.
CURRENCY = "[$€£¥₹]"
SIGN = re.compile(rf"(?P<sign>[-+])(?P<gap>\s*){CURRENCY}?\s?\Z")
MINUS = re.compile(rf"(?i)(?P<left>[0-9]\S*\s+)?\b(?:minus|negative)\s+{CURRENCY}?\Z")
JOINED_BEFORE = re.compile(
    r"(?i)(?:[0-9)%][\s$]*[×÷*/^+x]|[0-9%]\s+or|[√≠±≤≥]|\b(?:sqrt|log|ln|sin|cos|tan)|[A-Za-z0-9)] [<>]=?"
    r"|(?:\bnot|n't)(?:\s+equal\s+to)?)"
    r"[\s$(]*\Z"
)
JOINED_AFTER = re.compile(
    r"\s?[)\]]?(?:\^|\*\*)"
    r"|[\s*×]*(?:√|sqrt|(?:[πi∞]|pi)(?![A-Za-z]))"
    r"|[abeijnqruvwxyz](?![A-Za-z'])| [xyz](?![A-Za-z'])"
    r"|\.?\\|\([^()]{0,20}[0-9xyz]"
    r"|_[0-9A-Za-z]"  # the base of 101_2
    r"|\s?[≤≥≠]|\s?[<>]=?\s?[-+]?\.?[0-9xyz](?![A-Za-z])"
)
OPERATION = re.compile(r"[\s%$)]*(?:[-+*×÷/=≈±]|x(?= ?[0-9]))[\s$(]*[-+]?\.?[0-9]")
LISTED = re.compile(
    r"(?i)[\s%$(]*(?:(?:[a-z]{1,15}\.?\s){0,3}(?:&|and\s|or\s(?:[a-z]{1,15}\s){0,2})|[,;&]|and|or"
    r"|to(?!\s[0-9]\s?(?:d\.?p|decimal|s\.?f|significant)))"
    rf"\s*(?:[a-z]{{1,12}}\s*[=≈]\s*)?{CURRENCY}?\s?[-+]?\.?[0-9]"
)
COMPOUND = re.compile(
    r"(?i)\s?(?:h|hours?|hrs?|m|min|minutes?|days?|weeks?|months?|years?|feet|foot|ft|yards?|miles?|km|m|met(?:er|re)s?"
    r"|dollars?|euros?|pounds?|lbs?|kg|kilograms?)\b[.,]?\s?[0-9]"
)
"""What follows the first number of a measure in several units, such as `2 hours 30 minutes`."""
PAIR_BEFORE, PAIR_AFTER = re.compile(r"[0-9]\s*,\s*\Z"), re.compile(r"\s*[)\]]")
EXPRESSION = re.compile(
    r"[<>≤≥≠±√∞π|\\]|[0-9)]!|[0-9)]\s*[-+*×÷]\s*[A-Za-z(](?![A-Za-z])|[0-9]\s*/\s*[xyz](?![A-Za-z])"
    r"|[A-Za-z)]\s*[-+*×÷]\s*[0-9]"
)

# Markers of the final answer.
BRACE = re.compile(r"\\?(?:boxed|fbox)\s*\{|\\[{}]|[{}]")
TAG, TAG_END = re.compile(r"(?i)<answer>"), re.compile(r"(?i)</answer>")
PHRASE = re.compile(
    r"####(?!#)|\\boxed\s+(?=[-$0-9])"
    r"|\b(?:answer|Answer|ANSWER)"
    r"(?:[*_ ]{0,3}(?:\([^()\n]{0,40}\))?[*_ ]{0,3}[:=]|[^.\n:=<]{0,60}?\b(?:is|IS|be|equals)\b)"
    r"|答案\s*(?:是|为|:)"
)
CLAUSE_END = re.compile(r"[.!?](?=\s|$)|\n|<(?![<=\s0-9])|####|(?<!\\);(?!\s*[A-Za-z]\s*=)")
SPACE = re.compile(r"[\s:]*")
LEAD = re.compile(
    r"(?i)[\s:*_\"'“(\[$]*(?:(?:therefore|thus|so|then|now|simply|just|only|exactly|approximately|about|around"
    r"|roughly|equal to|minus|negative)[\s,:]+){0,3}(?:[A-Za-z]{1,12}\s*[=≈]\s*)?"
    rf"[\s*($€£¥₹]*[-+]?\s?{CURRENCY}?\s?[-+]?"
)
"""What may stand between a phrase and the number that it announces."""


def number(completion: str, solution: str) -> float:
    """Return 1.0 if the final answer of a completion is the number that the solution states; else 0.0.

    A solution that is not a number (true_number returns None) earns nothing; probe and evaluate report it.
    """
    truth = true_number(solution)
    return float(truth is not None and final_number(completion) == truth)


@functools.lru_cache(maxsize=4096)
def true_number(solution: str) -> Fraction | None:
    """Return the number at a ground truth's last marker, else its only number; None if there is none."""
    text = _plain_characters(solution)
    marked = _at_last_marker(text)
    return marked[0] if marked else _only_number(text)


def final_number(completion: str) -> Fraction | None:
    """Return a completion's final answer; None if it is not a single number."""
    after = completion.rpartition(THOUGHT_END)[2]
    text = _plain_characters(after if after.strip() else completion)
    marked = _at_last_marker(text)
    return marked[0] if marked else _last_number(text)


def answer_span(completion: str) -> tuple[int, int] | None:
    """Return begin and end of the number that `final_number` reads; None if there is none.

    A number that is written in LaTeX commands has the span of the statement around it.
    """
    if final_number(completion) is None:
        return None
    after = completion.rpartition(THOUGHT_END)[2]
    at = len(completion) - len(after) if after.strip() else 0
    spans = [span for span in (*_boxes(completion), *_tags(completion)) if span[0] >= at]
    _, begin, end = max(spans, default=(at, at, len(completion)))
    announced = False
    for phrase in reversed([*PHRASE.finditer(completion, begin if spans else at)]):
        if _announced(completion, phrase.end()):
            space = SPACE.match(completion, phrase.end())
            begin = space.end() if space else phrase.end()
            clause = CLAUSE_END.search(completion, begin, begin + CLAUSE)
            end, announced = clause.start() if clause else min(len(completion), begin + CLAUSE), True
            break
    if (announced or spans) and "\\" in completion[begin:end]:
        return begin, end
    numbers = [*NUMBER.finditer(completion, begin, end)] if announced or spans else []
    first = numbers[0] if announced and numbers else None
    if first is not None and not OPERATION.match(completion, first.end(), end):
        return first.span()
    last = numbers[-1:] or deque(NUMBER.finditer(completion, begin, end), maxlen=1)
    return last[0].span() if last else (begin, end)


def _plain_characters(text: str) -> str:
    return text if text.isascii() else text.translate(PLAIN_CHARACTERS)


def _at_last_marker(text: str) -> tuple[Fraction | None] | None:
    """Return the answer at the last marker, in a tuple; None if the text has no marker."""
    spans = [*_boxes(text), *_tags(text)]
    _, begin, end = max(spans, default=(0, 0, 0))
    for phrase in reversed([*PHRASE.finditer(text, begin)]):
        if announced := _announced(text, phrase.end()):
            return announced
    return (_only_number(text[begin:end]),) if spans else None


def _boxes(text: str) -> list[tuple[int, int, int]]:
    """Return start, begin of the content and its end for each box with balanced braces."""
    boxes: list[tuple[int, int, int]] = []
    opened: list[re.Match[str]] = []
    for brace in BRACE.finditer(text) if "box" in text else ():
        if brace[0] == "}" and opened:
            box = opened.pop()
            boxes += [(box.start(), box.end(), brace.start())] if len(box[0]) > 1 else []
        elif brace[0].endswith("{") and brace[0] != r"\{":
            opened.append(brace)
    return boxes


def _tags(text: str) -> list[tuple[int, int, int]]:
    """Return the same for the last <answer>; generation often stops at </answer>, which may be missing."""
    tags = deque(TAG.finditer(text), maxlen=1)
    ends = [(tag, TAG_END.search(text, tag.end())) for tag in tags]
    return [(tag.start(), tag.end(), end.start() if end else len(text)) for tag, end in ends]


def _announced(text: str, at: int) -> tuple[Fraction | None] | None:
    """Return the number that a clause begins with, or the result of the calculation that it begins with.

    None: it begins with neither, so "the answer is correct" and the heading "#### Step 1" are no markers.
    """
    space = SPACE.match(text, at)
    begin = space.end() if space else at
    end = CLAUSE_END.search(text, begin, begin + CLAUSE)
    clause = clean(text[begin : end.start() if end else begin + CLAUSE])
    first, lead = NUMBER.search(clause), LEAD.match(clause)
    if first is None or lead is None or lead.end() < first.start():
        return None
    if OPERATION.match(clause, first.end()):
        first = NUMBER.search(clause, max(clause.rfind("="), clause.rfind("≈"), first.end()))
    return (first and _value(clause, first, alone=True),)


def _only_number(text: str) -> Fraction | None:
    """Return the single number of a text: the result, if it is an equation."""
    parts = re.split("[=≈]", re.sub("[<>!]=", "≠", clean(text)))
    if any(re.search(r",\s|;|\b(?:and|or)\b", part) for part in parts[1:-1]):
        return None  # several equations
    result = next((part for part in reversed(parts) if NUMBER.search(part)), "")
    if EXPRESSION.search(result):
        return None
    values = {_value(result, match, alone=True) for match in NUMBER.finditer(result)}
    return values.pop() if len(values) == 1 else None


def _last_number(text: str) -> Fraction | None:
    """Return the last number of a text; None if it is part of something else."""
    text = clean(text)
    last = deque(NUMBER.finditer(text), maxlen=1)
    if not last:
        return None
    around = text[: last[0].start()] + text[last[0].end() :]
    return _value(text, last[0], alone=not re.search(r"\w", around))


def _value(text: str, match: re.Match[str], alone: bool) -> Fraction | None:
    """Return the value of a number with its sign and scale; None if its surroundings change its meaning.

    With `alone`, nothing else may be stated beside it: no alternative, and no operation.
    """
    before, after = text[max(0, match.start() - CONTEXT) : match.start()], text[match.end() :][:CONTEXT]
    value = _unsigned(match)
    if value is None or JOINED_BEFORE.search(before) or JOINED_AFTER.match(after):
        return None
    if PAIR_BEFORE.search(before) and PAIR_AFTER.match(after):
        return None
    if alone and (OPERATION.match(after) or LISTED.match(after) or COMPOUND.match(after)):
        return None
    if scale := SCALE.match(after):
        value *= SCALES[scale[1] or scale[2]]
    if minus := MINUS.search(before):
        return None if minus["left"] else -value
    sign = SIGN.search(before)
    if sign is None:
        return value
    left = before[: sign.start()].rstrip(" \u2009$")
    if left[-1:].isdigit() or left[-1:] in tuple(")%±+-"):  # 9-2 is an operation, 2020-05-18 a date
        return None if alone or left[-1:] != "-" else value
    if sign["gap"]:  # a bullet or a dash, unless the number stands alone
        applies = alone and left[-1:] in ("", "=", ":", "(", "[")
    else:
        applies = not left[-1:].isalpha() or before[: sign.start()] != left  # not in "Covid-19"
    if alone and not applies:
        return None
    return -value if applies and sign["sign"] == "-" else value


def _unsigned(match: re.Match[str]) -> Fraction | None:
    """Return the value of a match of NUMBER; None if it is malformed or too large."""
    if match["whole"]:
        parts = [_plain(match[name]) for name in ("whole", "top", "bottom")]
        whole, top, bottom = parts
        proper = whole is not None and top is not None and bottom and top < bottom
        return whole + top / bottom if proper else None  # type: ignore[operator]
    value = _plain(match["first"])
    if value is None:
        return None
    if match["division"]:
        divisors = [_plain(part) for part in match["division"].split("/")[1:]]
        return value / divisors[0] if len(divisors) == 1 and divisors[0] else None
    exponent = match["exponent"] or match["power"] or match["raised"]
    if exponent is None:
        return value
    if len(exponent) > 5 or abs(int(exponent)) > LARGEST_EXPONENT or (match["raised"] and value != 10):
        return None
    power = Fraction(10) ** int(exponent)
    return power if match["raised"] else value * power


def _plain(text: str) -> Fraction | None:
    """Return the value of digits with well-formed separators; None for others."""
    text = text.strip()
    if len(text) > MOST_DIGITS or not PLAIN.fullmatch(text):
        return None
    return Fraction(re.sub("[, \u2009]", "", text))


def _fraction(match: re.Match[str]) -> str:
    r"""Return \frac{a}{b} as a/b; an unknown command if it is not a fraction of numbers."""
    top, bottom = (part.strip().strip("$").strip() for part in (match[1] or match[2], match[3] or match[4]))
    negative = top.startswith("-") != bottom.startswith("-")
    top, bottom = top.lstrip("-").strip(), bottom.lstrip("-").strip()
    if _plain(top) is None or _plain(bottom) is None:
        return r"\frac "
    space = " " if match.string[: match.start()][-1:].isdigit() else ""
    return f"{space}{'-' if negative else ''}{top}/{bottom}"


Replacement = str | Callable[[re.Match[str]], str]
LATEX: tuple[tuple[re.Pattern[str], Replacement], ...] = (
    (re.compile(r"\\\\|\\(?:begin|end)\s*\{[a-z*]{1,20}\}"), "\n"),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\{,\}(?=[0-9])"), ","),
    (re.compile(r"\\[,;:]"), "\u2009"),
    (re.compile(r"\\([$%#&_])"), r"\1"),
    (
        re.compile(r"\\[()\[\] ]|\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|q?quad)(?![A-Za-z])"),
        " ",
    ),
    (
        re.compile(
            r"\\(?:text|math)(?:[a-z]{2})?(?![A-Za-z])|\\(?:[mh]box|bf|rm|it|bm|boldsymbol)(?![A-Za-z])"
        ),
        "",
    ),
    (re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])"), "×"),
    (re.compile(r"\\div(?![A-Za-z])"), "÷"),
    (re.compile(r"\\(?:approx|simeq?)(?![A-Za-z])"), "≈"),
    (re.compile(r"\\pi(?![A-Za-z])"), "π"),
    (re.compile(r"\\sqrt(?![A-Za-z])"), "√"),
    (re.compile(r"\\(?:circ|degree)(?![A-Za-z])"), "°"),
    (
        re.compile(r"\\(?:ge|geq|gt|le|leq|lt|ne|neq|pm|mp)(?![A-Za-z])"),
        "≠",
    ),  # none of them states one number
    (re.compile(r"\\[dtc]?frac\s*(?:\{([^{}]{1,80})\}|([0-9]))\s*(?:\{([^{}]{1,80})\}|([0-9]))"), _fraction),
)
"""LaTeX in the order in which it is replaced; other commands stay."""
VULGAR = re.compile(f"([0-9]?)([{''.join(VULGAR_FRACTIONS)}])")
RAISED = re.compile("[⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
INDEX = re.compile(r"([\^_])\s*\{\s*([^{}]{0,20})\}")
DEGREES = re.compile(r"\^\s*°")
EMPHASIS = re.compile(r"(?<![0-9)])\*\*|\*\*(?![0-9(])|`|(?<![A-Za-z0-9_])_{1,2}(?=[-$0-9])")
ITALIC = re.compile(r"(?<![0-9A-Za-z*])\*([^*\s](?:[^*\n]{0,60}[^*\s])?)\*(?![0-9A-Za-z*])")
CURRENCY_CODE = re.compile(r"\b(?:USD|EUR|GBP|CNY|RMB|JPY|INR|CAD|AUD|US|Rs|RM)\.?\s?(?=[-+$]?\.?[0-9])")


def clean(text: str) -> str:
    """Return a text without LaTeX and Markdown around its numbers."""
    if not text.isascii():
        text = VULGAR.sub(lambda found: found[1] + " " * bool(found[1]) + VULGAR_FRACTIONS[found[2]], text)
        text = RAISED.sub(lambda found: "^" + found[0].translate(SUPERSCRIPTS), text)
    if "\\" in text or "{" in text:
        for pattern, replacement in LATEX:
            text = pattern.sub(replacement, text)
        text = DEGREES.sub("°", INDEX.sub(r"\1\2", text)).replace("{", " ").replace("}", " ")
    if "*" in text or "_" in text or "`" in text:
        text = ITALIC.sub(r"\1", EMPHASIS.sub("", text))
    return CURRENCY_CODE.sub("", text).replace("+/-", "±")
