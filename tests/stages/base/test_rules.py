"""Tables of rules: what a row is told, what it tells, and which rows are asked at all."""

from dataclasses import dataclass, field

import pytest

from stages.base.errors import ConfigError
from stages.base.rules import Rules, at_least, at_most, be, divide, hold, multiple_of, value_at


@dataclass(frozen=True)
class Layout:
    cards: int = 4
    names: tuple[str, ...] = ("a", "b")


@dataclass(frozen=True)
class Run:
    batch: int = 8
    layout: dict[str, Layout] = field(default_factory=lambda: {"train": Layout(), "generate": Layout(3)})


@pytest.mark.parametrize(
    ("test", "told"),
    [
        (be(7, "of a week"), "batch=8: must be 7: of a week (source); set it to 7"),
        (be(lambda run: None), "batch=8: must be null (source); set it to null"),
        (at_most(4), "batch=8: must be at most 4 (source); use at most 4"),
        (at_least("layout.train.cards", remedy="add cards"), None),
        (at_least(9), "batch=8: must be at least 9 (source); use 9"),
        (
            multiple_of("layout.generate.cards"),
            "must be a multiple of layout.generate.cards=3 (source); use 9",
        ),
        (divide(lambda run: 12, "the {} rows"), "batch=8: must divide the 12 rows (source); use 6"),
        (hold(lambda run: False, "is odd", "mend it"), "batch=8: is odd (source); mend it"),
    ],
)
def test_a_row_tells_value_rule_source_and_remedy(test, told):
    rules = Rules[Run]("room", "source")
    rules.must("batch", test)
    assert [str(problem).endswith(told) for problem in rules.check(Run())] == ([True] if told else [])
    if told:
        with pytest.raises(ConfigError, match="batch=8"):
            rules.demand(Run())


def test_rows_that_repeat_an_earlier_one_are_silent_where_it_has_spoken():
    rules = Rules[Run]("room", "source")
    roles = {"each": lambda run: run.layout}
    rules.must("layout.{}.cards", be(4), **roles)
    rules.must("layout.{}.names", be(()), unless=("cards",), **roles)
    rules.must("batch", be(1), unless=("cards",))
    assert [problem.path for problem in rules.check(Run())] == ["layout.generate.cards", "layout.train.names"]


def test_a_function_is_a_row_and_may_tell_another_value():
    rules = Rules[Run]("room", "source")

    @rules.row("batch", when=lambda run: run.batch > 4)
    def _halves(run):
        return "in halves", "cut it", run.batch // 2

    whole = Rules[tuple[Run, ...]]("runs")
    whole.include(rules, lambda runs: runs[0] if runs else None)
    (problem,) = whole.check((Run(),))
    assert (problem.id, problem.value) == ("room.halves", 4)
    assert whole.check(()) == [] and whole.check((Run(4),)) == []
    assert [row.id for row in whole.rows()] == ["room.halves"]


def test_a_name_is_given_once_and_refers_to_an_earlier_row():
    rules = Rules[Run]("room", "source")
    rules.must("batch", be(1))
    for wrong in ({}, {"name": "other", "unless": ("later",)}):
        with pytest.raises(ValueError, match=r"room\.\w+: named twice, or after a row that is not there"):
            rules.must("batch", be(1), **wrong)


def test_a_key_is_looked_up_in_sections_lists_and_the_section_itself():
    assert value_at(Run(), "layout.train.names[1]") == "b"
    assert value_at(Run(), "layout.train.names") == ["a", "b"]
    assert value_at(Layout(), "layout.cards") == 4
    assert value_at(Run(), "layout.reference.cards") is None
