"""The reward `number`: final answers compared as exact numbers."""

import json
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.rewards.number import final_number, number, true_number
from tests.stages.fetch.settings import FIXTURE

EQUAL = [
    # markers, of which the last counts
    ("16 - 3 - 4 = 9\n9 * 2 = 18\n#### 18", "18"), ("#### 17\nNo.\n#### 18", "18"), ("####18", "18"),
    ("#### 18 dollars", "18"), ("#### $18.00\n", "18"), ("#### -5", "-5"), ("#### 9 * 2 = 18", "18"),
    ("#### 1,080\n\nQuestion: Tom has 5 apples.", "1080"), ("#### **18**", "18"), ("#### x = 18", "18"),
    (r"So \boxed{18} is right, as 3 * 6 shows.", "18"), (r"\boxed{17}, no, \boxed{18}", "18"),
    (r"$\boxed{\text{18 dollars}}$", "18"), (r"\boxed{x = 18}", "18"), (r"\boxed{\$18.00}", "18"),
    (r"\boxed{18\text{ km/h}}", "18"), (r"\boxed{25 \text{ cm}^2}", "25"),
    (r"\boxed{25\,\mathrm{m}^{2}}", "25"), (r"\boxed{\mathbf{18}}", "18"), (r"\fbox{18}", "18"),
    (r"\boxed 18", "18"), (r"\boxed{9 \times 2 = 18}", "18"), (r"\boxed{18} \boxed{1", "18"),
    ("<answer>5</answer>", "5"), ("<answer> 5 </answer>", "5"), ("<answer>18", "18"),
    ("<ANSWER>18</ANSWER>", "18"), ("<answer>Tom has 18 apples.</answer>", "18"),
    (r"<answer>\boxed{18}</answer>", "18"), ("<answer>The answer is 18.</answer>", "18"),
    ("#### 3\n<answer>18</answer>", "18"), ("<answer>3</answer>\n#### 18", "18"),
    (r"\boxed{3}. Answer: 18", "18"), ("The answer is 18.", "18"), ("The answer is 18!", "18"),
    ("The final answer is: $18.", "18"), ("Answer: 18", "18"), ("**Answer:** 18 apples", "18"),
    ("Final answer:\n18", "18"), ("The answer is therefore 18, because 9 * 2 is that.", "18"),
    ("The answer is x = 18.", "18"), ("The answer is 9 * 2 = 18 dollars.", "18"),
    ("The answer is $18 per day for 7 days.", "18"), ("The answer is 18. I checked 3 times.", "18"),
    (r"The answer is \(18\).", "18"), ("答案是18元。", "18"),
    ("The answer is 18 dollars and she has 2 left.", "18"), ("The answer is 18 for 2 people", "18"),
    ("The answer is 3.14 to 2 decimal places.", "3.14"), ("The answer is 18 minutes", "18"),
    ("#### 18<|im_end|>", "18"), ("#### 18</s>", "18"), ("<<9*2=18>>", "18"), ("#### 18\n> 5", "18"),
    ("18 is the result. Is the answer correct? Yes.", "18"), ("<think>The answer is 17?</think>\n\n18", "18"),
    ("<think>\n9*2\n</think>\n\n#### 18", "18"), ("#### Step 1: 9 * 2\nThat makes 18", "18"),
    ("#### Conclusion\nIt is 18.", "18"),
    # the last number
    ("18", "18"), ("It is 9 * 2 = 18 in all.", "18"), ("Her age is 18 years.", "18"), ("3, 7 and 8", "8"),
    ("Then 18 bottles of H2O.", "18"), ("The area is 25 cm^2.", "25"), ("The area is 25 cm².", "25"),
    ("- 18 apples", "18"), ("on day 3:\n- 18 apples", "18"), ("a 5-year-old", "5"), ("共18元", "18"),
    # signs
    ("-5", "-5"), ("\u22125", "-5"), ("-$5", "-5"), ("$-5", "-5"), ("x=-5", "-5"), ("+5", "5"), ("5", "+5"),
    (r"\boxed{- 5}", "-5"), (r"\boxed{\text{negative }5}", "-5"), ("It is minus 5.", "-5"), ("\uff15", "5"),
    ("The answer is \u20135", "-5"), (r"\boxed{-\frac{3}{4}}", "-0.75"), ("-0", "0"),
    # thousands and decimals
    ("1,234", "1234"), ("1234", "1,234"), ("1,234,567.50", "1234567.5"), (r"32,\!348", "32348"),
    (r"\boxed{32{,}348}", "32348"), (r"32\,348", "32348"), ("32\u202f348", "32348"), ("0.50", "0.5"),
    ("118 000", "118000"), ("#### 1 234 567.5", "1234567.5"), ("In 2020 150 people", "150"), ("- 5", "-5"),
    (".5", "0.5"), ("0.5", ".5"), ("18", "18.0"), ("18.00", "18"), ("18.", "18"), ("007", "7"),
    ("1.000", "1"),
    # fractions
    ("3/4", "0.75"), ("0.75", "3/4"), (r"\frac{3}{4}", "3/4"), (r"\dfrac34", "0.75"),
    (r"\boxed{1\frac{3}{4}}", "7/4"), ("1 3/4 cups", "1.75"), (r"\frac{-3}{4}", "-3/4"), ("36/2", "18"),
    ("\u00be", "0.75"), ("5\u00bd", "5.5"), ("2\u20443", "2/3"), (r"\frac{1,000}{3}", "1000/3"),
    ("-1 1/2", "-1.5"),
    # percent, currency, units, powers of ten
    ("5%", "5"), ("5%", r"5\%"), (r"5\%", "5%"), ("5", "5%"), ("5 percent", "5%"), ("$18.00", "18"),
    ("18€", "18"), ("€ 18", "18"), ("18", r"\$18"), (r"\$18.90", "18.9"), ("18.9", r"\$18.90"),
    ("USD 18", "18"), ("US$18", "18"), ("Rs.18", "18"), ("18 cents", "18"), ("18¢", "18"), ("5 km/h", "5"),
    ("5km", "5"), ("90°", "90"), (r"90^\circ", "90"), (r"\boxed{90^{\circ}}", "90"), ("1.8e1", "18"),
    ("1.8E+01", "18"), ("18", "1.8e1"), ("1.8 \u00d7 10^3", "1800"), (r"1.8 \times 10^{3}", "1800"),
    ("1.8*10^3", "1800"), ("5 \u00d7 10\u207b\u00b3", "0.005"), (r"\boxed{10^3}", "1000"),
    ("2 million", "2000000"), ("$1.5 million", "1500000"), ("$5k", "5000"), ("300 K", "300"), ("`18`", "18"),
    ("*18*", "18"), ("__18__", "18"),
    # ground truths as datasets have them
    ("18", "He pays 9 * 2 = 18\n#### 18"), ("36", r"\$36"), ("18", r"\boxed{18}"), ("18", "18 dollars"),
    ("0.5", r"\frac{1}{2}"), ("32348", r"\$32,\!348"), ("5", "x = 5"), ("18", "The answer is 18."),
]  # fmt: skip
DIFFERENT = [
    ("3", "3/4"), ("3/4", "3"), ("4", "3/4"), ("1/3", "0.333"), ("0.33", "1/3"), ("3:2", "3"),
    ("3", "3.0001"), ("5%", "0.05"), ("0.05", "5%"), ("12", "-12"), ("-12", "12"), ("#### -18", "18"),
    ("1800", "18"), ("18", "1800"),
    # several numbers, or a part of something else
    ("(1,2)", "12"), ("(1,2)", "2"), ("(1, 2)", "2"), (r"\boxed{1, 2}", "1"), (r"\boxed{1, 2}", "2"),
    (r"\boxed{(1,2)}", "12"), (r"\boxed{3 \text{ or } 4}", "3"), (r"\boxed{3 \text{ and } 4}", "4"),
    ("The answer is 3 or 4.", "3"), ("3 or 4", "4"), ("The answer is 18, 20", "18"),
    ("#### 18 20 22 = ?", "20"), ("<answer>1 2 3 4 5 18</answer>", "18"), ("The answer is 3-4.", "3"),
    ("2020-05-18", "18"), ("16 - 3", "3"), ("16 minus 3", "3"), ("16 minus 3", "-3"), ("9 * 2", "2"),
    (r"\boxed{9 \times 2}", "9"), (r"\boxed{9 \times 2}", "2"), (r"\boxed{x = 5, y = 6}", "6"),
    (r"\boxed{x = 5, y = 6}", "5"), (r"\boxed{5x}", "5"), (r"\boxed{5 x}", "5"), (r"\boxed{x + 5}", "5"),
    (r"\boxed{5 + x}", "5"), (r"\boxed{5\pi}", "5"), ("5\u03c0", "5"), (r"\boxed{2\sqrt{3}}", "2"),
    (r"\boxed{2\sqrt{3}}", "3"), (r"\boxed{\sqrt{2}}", "2"), ("\u221a2", "2"),
    (r"\boxed{0.\overline{3}}", "0"), (r"\boxed{2^{10}}", "2"), ("5\u00b2", "5"), ("5^2", "5"),
    (r"\boxed{5i}", "5"), (r"\boxed{x > 5}", "5"), (r"\boxed{x \geq 5}", "5"), (r"\boxed{x <= 5}", "5"),
    (r"\boxed{\pm 5}", "5"), ("2 million", "2"), ("12,34", "1234"), ("1,2345", "12345"), ("1.2.3", "1.2"),
    ("1.2.3", "3"), ("5:30", "30"), ("12/25/2020", "2020"), ("#### 118 000", "118"), ("118 000", "0"),
    ("18 ± 2", "18"), ("#### 18 +/- 2", "18"), ("18 +/- 2", "2"), (r"\boxed{5!}", "5"), ("3/0", "0"),
    (r"\boxed{\frac{x}{2}}", "2"), (r"\boxed{\frac{1}{2}x}", "0.5"), (r"\boxed{[5, \infty)}", "5"),
    # the last marker counts, even if an earlier one or the text is right
    ("#### 18\n#### 17", "18"), (r"\boxed{18} \boxed{17}", "18"), ("#### 18\nAnswer: 17", "18"),
    (r"18 \boxed{}", "18"), (r"18 \boxed{\text{none}}", "18"), ("18 <answer></answer>", "18"),
    ("<think>18</think>\n17", "18"), ("The answer is 17, not 18", "18"),
    ("answer is 18; the answer is 17", "18"),
    # a second number after the first and its unit
    ("#### 3 apples and 4 pears", "3"), ("The answer is 3 red apples and 4 pears.", "3"),
    ("The answer is 18 (or 19).", "18"), ("#### 18 or maybe 19", "18"), ("answer is x = 3 and y = 4", "3"),
    ("The answer is a = 3; b = 4", "3"), ("#### 2 hours 30 minutes", "2"), ("#### 3h 20m", "3"),
    ("#### 2 hours and 30 minutes", "2"), ("#### 5 feet 6 inches", "5"), ("#### 18 dollars 50 cents", "18"),
    # comparisons, denials, bases and digit groups of programming languages
    ("Answer: 3 < 4", "3"), ("#### 18 \u2265 x", "18"), ("The answer is not 18", "18"), ("It isn't 18", "18"),
    (r"\boxed{101_2}", "101"), (r"\boxed{43_{5}}", "43"), ("#### 1_000", "1"),
    # no number at all
    ("", "18"), ("eighteen", "18"), ("no idea", "18"), ("x18", "18"), ("<answer>none</answer>", "18"),
    ("####", "18"),
    # beyond the limits
    ("1e999999999", "1"), ("1e999999999", "10"), ("9" * 101, "9"), ("10^999999999", "10"), ("1e101", "1"),
    ("1 \u00d7 10^999999999", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("completion", "truth"), EQUAL)
def test_the_same_number(completion, truth):
    assert number(completion, truth) == 1.0


@pytest.mark.parametrize(("completion", "truth"), DIFFERENT)
def test_another_number_or_none(completion, truth):
    assert number(completion, truth) == 0.0


TEXTS = (
    "", "none", "B", "x", "(1,2)", "1, 2", "3 or 4", r"2\sqrt{3}", r"\pi", "5x", "x + 5", "1,2345", "3/0",
    "x > 5",
    "1e999999999", "9" * 101, "3 apples and 4 pears", r"\frac{x}{2}", "[0, 1]", "5:30", r"0.\overline{3}",
)  # fmt: skip


GSM8K = [json.loads(line) for line in (FIXTURE / "train.jsonl").read_text(encoding="utf-8").splitlines()]
# lm-evaluation-harness (strict-match, flexible-extract) and verl (strict, flexible) read as GSM8K's answer
# the number after "####", without commas and dollar signs; or the last number of the text.
READ_BY_OTHERS = (
    "#### {}",
    "Some work: 3 + 4.\n#### {}",
    "It is ${}.",
    "So it is {} in all",
    "The answer is {}.",
)


@pytest.mark.parametrize("form", READ_BY_OTHERS)
def test_answers_that_other_evaluations_of_gsm8k_accept_are_accepted(form):
    truths = [row["answer"].rpartition("#### ")[2] for row in GSM8K]
    assert len(set(truths)) > 3
    for row, truth in zip(GSM8K, truths, strict=True):
        assert number(row["answer"], truth) == 1.0
        for answer in (truth, f"{int(truth.replace(',', '')):,}"):
            assert [number(form.format(answer), other) for other in truths] == [
                float(t == truth) for t in truths
            ]


@pytest.mark.parametrize("truth", TEXTS)
def test_nothing_equals_a_truth_that_is_not_a_number(truth):
    assert true_number(truth) is None
    for completion in (truth, f"#### {truth}", "12", "3", "0"):
        assert number(completion, truth) == 0.0


@given(
    st.fractions(max_denominator=1000),
    st.sampled_from(["#### {}", r"\boxed{{{}}}", "<answer>{}</answer>", "{}"]),
)
def test_every_fraction_is_read_exactly(value, form):
    assert final_number(form.format(f"{value.numerator}/{value.denominator}")) == value


@given(st.integers(-(10**12), 10**12), st.integers(0, 4))
def test_every_decimal_is_read_with_and_without_separators(value, places):
    exact = Fraction(value, 10**places)
    for text in (f"{value / 10**places:.{places}f}", f"{value / 10**places:,.{places}f}"):
        if Fraction(text.replace(",", "")) == exact:  # floats are not exact
            assert true_number(text) == final_number(f"So it costs ${text}.") == exact


PIECES = [
    *"0123456789.,/-+=^*_(){}$%<> \n\\#exX\u00bd\u00b2",
    "\\frac",
    "\\boxed{",
    "answer is",
    "<answer>",
    "<",
]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_every_text_is_read_without_an_error(text):
    assert number(text, text) in (0.0, 1.0)


@pytest.mark.parametrize(
    "part",
    ["9", "1,", "1.", "1/", "1 ", "-", "- ", "\\boxed{", "\\boxed{1}", "{", "}", "<answer>", "#### ",
    "#### x",
     "answer is ", "The answer ", "answer", "$", "=", "1=", "\\frac{1}", "\\frac{", "*1", "*", "**", "1^",
     "1e", "_1",
     "</think>", "\\text{", "1 or ", "(1,", "½", "⁵", "Rs ", "\\", "9\u2009", " ", "\n", "minus ", "so "],
)  # fmt: skip
def test_long_completions_take_little_time(part):
    short, long = (min(reading_s((part * size)[:size]) for _ in range(3)) for size in (10_000, 100_000))
    assert short < 0.3 and long < 30 * max(short, 0.02)  # square time would take 100 times as long


def reading_s(text):
    """Return the seconds to read a text; its callers take the least, which leaves out garbage collection."""
    began = time.process_time()
    final_number(text)
    final_number(text + "18")
    return time.process_time() - began
