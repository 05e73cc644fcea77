"""Some hundred steps at a store; `make fuzz` goes on for as long as one likes."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzz.store_machine import StoreMachine


@pytest.mark.slow
def test_whatever_is_done_to_a_store_nothing_wrong_passes_for_right() -> None:
    few = settings(
        max_examples=6,
        stateful_step_count=12,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(StoreMachine, settings=few)
