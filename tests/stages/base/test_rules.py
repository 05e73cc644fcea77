"""Tables of rules: conditions, remedies, and which rows are checked."""

from dataclasses import dataclass, field

import pytest

from stages.base.errors import ConfigError
from stages.base.rules import Rules, at_least, at_most, be, divide, hold, multiple_of


@dataclass(frozen=True)
class Layout:
    cards: int = 4
    names: tuple[str, ...] = ("a", "b")


@dataclass(frozen=True)
class Run:
    batch: int = 8
    layout: dict[str, Layout] = field(default_factory=lambda: {"train": Layout(), "generate": Layout(3)})


@pytest.mark.parametrize(
    ("test", "remedy"),
    [
        (be(7), "set it to 7"), (be(8), None), (be(lambda run: None), "set it to null"),
        (at_most(7), "use at most 7"), (at_most(8), None), (at_least("layout.train.cards"), None),
        (at_least(9), "use 9"), (multiple_of("layout.generate.cards"), "use 9"),
        (divide(lambda run: 12), "use 6"), (hold(lambda run: False, "is odd", "correct it"), "correct it"),
    ],
)  # fmt: skip
def test_a_broken_row_is_a_problem_with_source_and_remedy(test, remedy):
    rules = Rules[Run]("table", "source")
    rules.must("batch", test)
    problems = rules.check(Run())
    assert [(problem.path, problem.value, problem.remedy) for problem in problems] == (
        [("batch", 8, remedy)] if remedy else []
    )
    if remedy:
        assert problems[0].rule.endswith(" (source)")
        with pytest.raises(ConfigError):
            rules.demand(Run())


def test_rows_are_not_checked_for_items_that_break_an_earlier_row():
    rules = Rules[Run]("table", "source")
    roles = {"each": lambda run: run.layout}
    rules.must("layout.{}.cards", be(4), **roles)
    rules.must("layout.{}.names", be(()), unless=("cards",), **roles)
    rules.must("batch", be(1), unless=("cards",))
    assert [problem.path for problem in rules.check(Run())] == ["layout.generate.cards", "layout.train.names"]


def test_a_function_is_a_row_and_may_show_another_value():
    rules = Rules[Run]("table", "source")

    @rules.row("batch", when=lambda run: run.batch > 4)
    def _halves(run):
        return "in halves", "cut it", run.batch // 2

    complete = Rules[tuple[Run, ...]]("runs")
    complete.include(rules, lambda runs: runs[0] if runs else None)
    (problem,) = complete.check((Run(),))
    assert (problem.id, problem.value) == ("table.halves", 4)
    assert complete.check(()) == [] and complete.check((Run(4),)) == []
    assert [row.id for row in complete.rows()] == ["table.halves"]
