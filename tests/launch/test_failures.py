"""The table itself: complete and readable."""

import re

import pytest

from launch.diagnose.failures import GRPOFLOW_ERROR, failures, fill


@pytest.mark.parametrize("failure", failures(), ids=lambda one: one.name)
def test_an_entry_can_be_shown(failure):
    groups = set(re.compile(failure.pattern).groupindex)
    used = set(re.findall(r"(?<!\{)\{(\w+)\}", failure.cause + failure.remedy))
    assert used <= groups
    assert failure is GRPOFLOW_ERROR or (failure.sign and failure.cause and failure.remedy)


def test_names_are_unique():
    assert len({one.name for one in failures()}) == len(failures())


def test_what_took_no_part_in_a_match_is_a_question_mark():
    match = re.compile(r"a(?P<first>b)?(?P<second>c)").search("ac")
    assert match and fill("{first} {second}", match) == "? c"
