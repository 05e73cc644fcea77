"""No test changes what a later one of the same process finds."""

import multiprocessing


def test_one_that_changes_how_processes_are_started():
    multiprocessing.set_start_method("spawn", force=True)
    assert multiprocessing.get_start_method() == "spawn"


def test_the_next_one_forks_as_mindspore_does():
    assert multiprocessing.get_start_method() == "fork"
