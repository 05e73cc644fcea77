"""A check on a few rows, before training, that the configured reward can be earned.

The prompt's request, the form that the reward expects, and the dataset's ground truth must fit together. Raw
GSM8K questions with a reward for boxed answers, for example, always give reward 0: nothing asks for a box,
and no demonstration shows one.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from stages.base.errors import InputError, Problem
from stages.fetch.config import DatasetConfig
from stages.fetch.records import Row
from stages.fetch.training import first_bad_line, training_rows
from stages.rewards.config import BUILTIN, RewardConfig
from stages.rewards.messages import OURS
from stages.rewards.score import Columns, columns_of, outcomes_of
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.text import columns, ground_truth, user_text

T = TypeVar("T")

ROWS = 64
EARNED = 0.5
"""Smallest mean reward of a form of answer that earns the reward.

A function that compares completions is earned by forms that score more than the worst broken one."""
DEMONSTRATED, CUT_OFF = "demonstrated", "cut off"
BROKEN = ("empty", "wrong", CUT_OFF)
"""Forms of `broken`; all others state the right answer."""
COMPARING = ("number", "accuracy", "qwen_accuracy", "maths", "knights", "cosine")
"""Functions that compare each answer with its ground truth and score right ones at least EARNED."""
UNKNOWN = ("soft_overlong", "code")
"""Functions that no form of answer earns: one gives at most 0, and only a program earns the other."""
REQUESTED_BY = {"boxed": "\\boxed", "think": "<answer>", "thinking": "<think>", "marked": "####"}
"""Form of answer -> text in a prompt that requests it."""


@dataclass(frozen=True)
class Leftover:
    """Part of the stop token that an engine's decoder leaves at the end of a completion's text."""

    text: str
    source: str
    remedy: str


@dataclass(frozen=True)
class FunctionProbe:
    """Scores of one reward function."""

    weight: float
    means: dict[str, float]
    """Form of answer -> mean reward over the rows."""
    earned_by: tuple[str, ...]
    """Forms that earn it and that the data demonstrates or the prompt requests."""
    unasked: tuple[str, ...]
    """Forms that would earn it, but that neither data nor prompt suggest."""
    failures: int
    unmatched: tuple[str, ...]
    """Ground truths whose right answer scores in no form that the prompt requests (if it requests none: in no
    demonstrated one), although the function can be earned."""


@dataclass(frozen=True)
class Probe:
    """Result of the probe."""

    rows: int
    functions: dict[str, FunctionProbe]
    example: dict[str, str]
    """The first row's prompt, ground truth and completions."""
    problems: tuple[Problem, ...]
    """Reasons why the reward cannot be earned or does not distinguish right from wrong; empty if sound."""

    @property
    def earnable(self) -> bool:
        """True if any function with a positive weight can be earned."""
        return any(function.earned_by for function in self.functions.values() if function.weight > 0)

    def to_json(self) -> dict[str, Any]:
        """Plain data, for `--json` and reports."""
        values = dataclasses.asdict(self)
        values["problems"] = [str(problem) for problem in self.problems]
        return {"earnable": self.earnable, **values}


def sample_rows(
    dataset: DatasetConfig, config: TokenizeConfig, seed: int, fetched: Path | None = None, count: int = ROWS
) -> list[Row]:
    """Return the first usable training rows.

    Raises:
        InputError: the dataset is not here, or holds no usable row.
    """
    if fetched is None and dataset.source not in ("builtin", "local"):
        rule = f"is needed to look into a dataset from {dataset.source}"
        remedy = "give files you have with dataset.path, or run first: plan then reads what was fetched"
        raise InputError("dataset.path", None, rule, remedy)
    rows = training_rows(dataset, columns(dataset, config), seed, fetched, count)
    first = list(islice(rows, count))
    if not first:
        bad = first_bad_line(dataset, columns(dataset, config), fetched)
        rule, remedy = "holds no rows", "give JSON lines, a JSON array or Parquet"
        if bad is not None:
            rule = f"holds no usable row, for example line {bad.line}: {bad.reason}"
            remedy = "correct the rows, or set dataset.columns"
        raise InputError(fetched or dataset.path, None, rule, remedy)
    return first


def answers(row: Row, truth: str) -> dict[str, str]:
    """Return the forms in which a model may state the right answer."""
    reasoning = row.answer.rpartition("####")[0].strip() or "So."
    return {
        DEMONSTRATED: row.answer,
        "marked": f"{reasoning}\n#### {truth}",
        "boxed": f"{reasoning} The answer is \\boxed{{{truth}}}.",
        "think": f"<think>{reasoning}</think>\n<answer>{truth}</answer>",
        "thinking": f"<think>\n{reasoning}\n</think>\n\n{truth}",
    }


def broken(row: Row, wrong: str) -> dict[str, str]:
    """Return completions that deserve no reward: empty, another row's answer, and an answer cut off early."""
    cut = row.answer[: len(row.answer) // 3].rstrip("0123456789")
    return dict(zip(BROKEN, ("", answers(row, wrong)["marked"], cut), strict=True))


def arguments(rows: Sequence[Row], config: TokenizeConfig) -> dict[str, list[Any]]:
    """Return the named arguments of reward functions for one completion of each row."""
    known = dict.fromkeys(key for row in rows for key in row.columns or ())
    columns = {key: [(row.columns or {}).get(key) for row in rows] for key in known if key not in OURS}
    return {**columns, "prompts": [user_text(row, config) for row in rows]}


def probe(
    dataset: DatasetConfig,
    config: TokenizeConfig,
    reward: RewardConfig,
    rows: Sequence[Row],
    leftover: Leftover | None = None,
) -> Probe:
    """Score right and broken completions of `rows` with the configured reward; user functions are called.

    `leftover` is set for engines whose rewards also read part of the stop token.

    Raises:
        InputError: a user's function can't be imported, or no row has a ground truth.
    """
    known = [(row, ground_truth(row, dataset, config)) for row in rows]
    pairs = [(row, truth) for row, truth in known if truth]
    if not pairs:
        rule = f"gives none of the {len(rows)} sampled rows a ground truth"
        raise InputError("dataset.solution", dataset.solution, rule, "check dataset.columns and the answers")
    truths = [truth for _, truth in pairs]
    forms = [
        answers(row, truth) | broken(row, wrong)
        for (row, truth), wrong in zip(pairs, _different_truths(truths), strict=True)
    ]
    prompt = (config.system_prompt + "\n" if config.chat_template else "") + user_text(pairs[0][0], config)
    expected = {DEMONSTRATED, *(form for form, words in REQUESTED_BY.items() if words in prompt)}
    if config.enable_thinking:
        expected.add("thinking")
    named = arguments([row for row, _ in pairs], config)
    functions = _probe_functions(reward, forms, truths, named, expected, leftover.text if leftover else "")
    problems = _unearned(functions)
    # if nothing is earned, right and wrong answers score the same anyway
    is_hopeless = problems and not any(function.earned_by for function in functions.values())
    if leftover and problems:
        without = _probe_functions(reward, forms, truths, named, expected)
        problems = _attribute(leftover, problems, _unearned(without))
    if not is_hopeless:
        problems += _undistinguished(functions, expected)
    problems += _unmatched(functions, len(pairs), sorted(_deciding(expected)))
    example = {"prompt": prompt, "ground truth": truths[0], **forms[0]}
    return Probe(len(pairs), functions, example, tuple(problems))


def _different_truths(truths: Sequence[str]) -> list[str]:
    """Return for each row the next different ground truth; "no number" if all are equal."""
    return [
        next((candidate for candidate in (*truths[i + 1 :], *truths[:i]) if candidate != truth), "no number")
        for i, truth in enumerate(truths)
    ]


def _probe_functions(
    reward: RewardConfig,
    forms: Sequence[dict[str, str]],
    truths: Sequence[str],
    named: Mapping[str, Sequence[Any]],
    expected: set[str],
    end: str = "",
) -> dict[str, FunctionProbe]:
    """Score each form of answer of all rows."""
    scored, functions = _score_forms(reward, forms, truths, named, end), {}
    for name, weight in zip(reward.functions, reward.weights, strict=True):
        means = {form: round(statistics.fmean(columns.parts[name]), 4) for form, columns in scored.items()}
        right = [form for form in means if form not in BROKEN]
        earning = [form for form in right if means[form] >= EARNED]
        if expected.isdisjoint(earning) and name not in BUILTIN:
            alone = dataclasses.replace(reward, functions=(name,), weights=(weight,))
            if _compares_completions(alone, scored, forms, truths, named, end):  # EARNED is not on its scale
                worst = min(means[form] for form in BROKEN)
                earning = [form for form in right if means[form] > worst]
        earned_by = tuple(form for form in earning if form in expected)
        unmatched: tuple[str, ...] = ()
        if earned_by and name in COMPARING:
            values = zip(*(scored[form].parts[name] for form in _deciding(expected)), strict=True)
            unmatched = tuple(truth for truth, row in zip(truths, values, strict=True) if max(row) < EARNED)
        functions[name] = FunctionProbe(
            weight,
            means,
            earned_by,
            unasked=tuple(form for form in earning if form not in expected),
            failures=max(columns.failures[name] for columns in scored.values()),
            unmatched=unmatched,
        )
    return functions


def _score_forms(
    reward: RewardConfig,
    forms: Sequence[Mapping[str, str]],
    truths: Sequence[str],
    named: Mapping[str, Sequence[Any]],
    end: str,
) -> dict[str, Columns]:
    """Return the rewards of all rows by form; a function is called once with all forms of all rows.

    The forms of a row are neighbours, as the completions of a prompt are in training. Their length is 0,
    because lengths depend on the model.
    """
    names = list(forms[0])
    lines = [row[form] + ("" if form == CUT_OFF else end) for row in forms for form in names]
    columns = {key: _repeated(values, len(names)) for key, values in named.items()}
    scored = outcomes_of(reward, lines, _repeated(truths, len(names)), [0] * len(lines), columns)
    return {
        form: columns_of({name: each.take(slice(i, None, len(names))) for name, each in scored.items()})
        for i, form in enumerate(names)
    }


def _repeated(values: Sequence[T], count: int) -> list[T]:
    return [value for value in values for _ in range(count)]


def _compares_completions(
    reward: RewardConfig,
    scored: Mapping[str, Columns],
    forms: Sequence[Mapping[str, str]],
    truths: Sequence[str],
    named: Mapping[str, Sequence[Any]],
    end: str,
) -> bool:
    """Return True if a function scores right or broken answers differently without the others."""
    parts = ([form for form in scored if (form in BROKEN) == are_broken] for are_broken in (False, True))
    for part in parts:
        some = [{form: row[form] for form in part} for row in forms]
        alone = _score_forms(reward, some, truths, named, end)
        if any(
            alone[form].parts[name] != scored[form].parts[name] for form in part for name in reward.functions
        ):
            return True
    return False


def _deciding(expected: set[str]) -> set[str]:
    """Return the forms that the prompt requests; the demonstrated one if it requests none."""
    return expected - {DEMONSTRATED} or expected


def _unmatched(functions: dict[str, FunctionProbe], rows: int, forms: Sequence[str]) -> list[Problem]:
    """Return a problem for each function that some right answers do not earn."""
    problems = []
    for name, function in functions.items():
        if function.weight > 0 and function.unmatched:
            rule = (
                f"right answers to {len(function.unmatched)} of {rows} sampled rows earn nothing in the form "
                f"{' or '.join(forms)}, for example with ground truth {function.unmatched[0]!r:.60}"
            )
            remedy = "correct these ground truths or what the prompt asks for, or use another reward"
            problems.append(Problem("reward.functions", name, rule, remedy))
    return problems


def _unearned(functions: dict[str, FunctionProbe]) -> list[Problem]:
    problems = []
    for name, function in functions.items():
        if function.weight <= 0 or function.earned_by or name in UNKNOWN:
            continue
        rule = "can't be earned: neither the demonstrated answers nor what the prompt asks for score"
        remedy = "use another reward, or change dataset.solution"
        if function.unasked:
            words = " or ".join(REQUESTED_BY[form] for form in function.unasked)
            keys = "tokenize.prompt_suffix (or, with tokenize.chat_template=true, in tokenize.system_prompt)"
            remedy = f"ask for {words} in {keys}, or use another reward"
        problems.append(Problem("reward.functions", name, rule, remedy))
    return problems


def _attribute(leftover: Leftover, problems: Sequence[Problem], without: Sequence[Problem]) -> list[Problem]:
    """Attribute problems to the leftover if they do not occur without it."""
    known = {problem.value: problem for problem in without}
    rule = (
        f"can't be earned: the token that ends a completion stays in the text as {leftover.text!r} "
        f"({leftover.source})"
    )
    return [
        known.get(problem.value) or Problem(problem.path, problem.value, rule, leftover.remedy)
        for problem in problems
    ]


def _undistinguished(functions: dict[str, FunctionProbe], expected: set[str]) -> list[Problem]:
    def total(form: str) -> float:
        return sum(function.weight * function.means[form] for function in functions.values())

    if "code" in functions:
        return []
    best = max(map(total, expected))
    forms = [form for form in BROKEN if total(form) >= best]
    rule = f"scores {best:.2f} for right answers and no less for these"
    remedy = "add a function that looks at the ground truth (number)"
    return [Problem("reward", ", ".join(forms), rule, remedy)] if forms else []
