"""The built-in dataset: short addition problems that a model of 1 M parameters learns within a minute."""

import itertools
import random
import zlib
from collections.abc import Sequence

from stages.base.errors import InputError
from stages.fetch.config import ArithConfig

# Each word is frequent enough to become one token, which keeps prompts at 23 tokens or fewer.
NAMES = ("Tom", "Ann", "Ben", "Mia", "Leo", "Zoe", "Sam", "Eva", "Max", "Ida", "Jim", "Amy")
THINGS = ("apples", "books", "cards", "coins", "cups", "eggs", "keys", "pens", "pears", "rings", "shells")
TEST_SHARE = 6
"""One in this many addend sequences is reserved for the held-out rows."""
RAISE = "lower the rows or raise dataset.arith.max_addends"

Pair = tuple[str, str]


def generate(
    config: ArithConfig, seed: int, train_rows: int, test_rows: int
) -> tuple[list[Pair], list[Pair]]:
    """Return distinct (question, answer) pairs for training and for the held-out test.

    No question occurs twice, and no sequence of addends of a test question occurs in training (under any
    name or thing), so that test accuracy measures adding, not remembering. The same seed gives the same rows
    on every machine. Raise InputError if there are not that many distinct questions.
    """
    source = random.Random(f"arith {seed}")  # noqa: S311 - data, no secret
    train: list[Pair] = []
    test: list[Pair] = []
    seen = set()
    for _ in range(20 * (train_rows + test_rows)):  # attempts
        count = source.randint(config.min_addends, config.max_addends)
        addends = tuple(source.randint(1, 9) for _ in range(count))
        name, thing = source.choice(NAMES), source.choice(THINGS)
        worked = source.random() < config.worked_share
        question = write_question(name, addends, thing)
        rows, limit = (test, test_rows) if _held_out(addends, seed) else (train, train_rows)
        if question not in seen and len(rows) < limit:
            seen.add(question)
            rows.append((question, write_answer(addends, worked)))
        if len(seen) == train_rows + test_rows:
            return train, test
    rule = f"only {len(seen)} distinct questions found with {config.min_addends}-{config.max_addends} addends"
    raise InputError("dataset.train_rows", train_rows, rule, RAISE)


def check_rows(config: ArithConfig, seed: int, train_rows: int, test_rows: int) -> None:
    """Raise the error that `generate` would raise, without generating the rows in most cases."""
    sequences = sum(9**count for count in range(config.min_addends, config.max_addends + 1))
    questions = sequences * len(NAMES) * len(THINGS)
    # Far fewer rows than there are questions with the most addends are always found.
    longest = 9**config.max_addends * len(NAMES) * len(THINGS) // TEST_SHARE
    if train_rows + test_rows > questions:
        rule = f"with {test_rows} held out, only {questions} distinct questions exist"
        raise InputError("dataset.train_rows", train_rows, rule, RAISE)
    if (train_rows + test_rows) * TEST_SHARE > longest:
        generate(config, seed, train_rows, test_rows)


def _held_out(addends: Sequence[int], seed: int) -> bool:
    return zlib.crc32(f"{seed} {addends}".encode()) % TEST_SHARE == 0


def write_question(name: str, addends: Sequence[int], thing: str) -> str:
    """Return the question, for example `Tom has 3, 7 and 8 apples. How many in all?`."""
    listed = ", ".join(map(str, addends[:-1]))
    return f"{name} has {listed} and {addends[-1]} {thing}. How many in all?"


def write_answer(addends: Sequence[int], worked: bool) -> str:
    """Return the answer: `#### 18`, or one line per addition before it (`3+7=10`, `10+8=18`, `#### 18`)."""
    sums = list(itertools.accumulate(addends))
    lines = [f"{left}+{right}={left + right}" for left, right in zip(sums, addends[1:], strict=False)]
    return "\n".join([*(lines if worked else ()), f"#### {sums[-1]}"])
