"""Random operations on a store, with damage and kills: no wrong result passes as a correct one."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzz.store_machine import StoreMachine


@pytest.mark.hypothesis
@pytest.mark.slow
def test_whatever_is_done_to_a_store_nothing_wrong_passes_for_right():
    few = settings(max_examples=settings().max_examples // 4, stateful_step_count=12)
    run_state_machine_as_test(StoreMachine, settings=few)
