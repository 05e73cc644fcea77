"""Tests of one process do not influence each other (see pytest_runtest_teardown in conftest.py)."""

import multiprocessing


def test_changing_the_start_method():
    multiprocessing.set_start_method("spawn", force=True)
    assert multiprocessing.get_start_method() == "spawn"


def test_the_start_method_was_restored():
    assert multiprocessing.get_start_method() == "fork"
