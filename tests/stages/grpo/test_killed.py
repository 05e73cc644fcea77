"""kill -9 during checks and while the best checkpoint is written: nothing is lost, nothing is half there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stages.grpo.checkpoint import ROLE_OF, read_set, read_state
from stages.weights.tensors import load
from tests.stages.grpo.test_records import files
from tests.stages.grpo.test_workers import SINGLE_CARD, SMALL, metrics, prepare, specify

RULES = [
    "train.steps=10", "train.validate_every=1", "train.validation_prompts=4", "train.keep_best=true",
    "train.checkpoint_every=3", "train.keep_checkpoints=1",
]  # fmt: skip
KILLS = [("validation", 3), ("sync", 19), ("sync", 3), ("removal", 1), ("validation", 2)]
"""Where each attempt dies. Checkpoints are written after steps 0, 1 and 4 (better than before), 3, 6 and 9
(by rule), each with 13 syncs: 3 files, the state, 8 directories, and the place where it appears. So the
second attempt dies while step 4's, the best of all, is all but complete, and the fourth when it has just
replaced what was the best before."""
SAME = ("reward", "loss", "kl", "grad_norm", "entropy", "completion_length", "validation_accuracy")


def attempt(file, *place):
    script = Path(__file__).with_name("killed.py")
    command = [sys.executable, str(script), str(file), *map(str, place)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": os.getcwd()}, capture_output=True, check=False
    )
    return done.returncode, done.stderr.decode()[-2000:]


def complete(checkpoints):
    """Steps whose checkpoint counts; what a resumed run may read can be read."""
    steps = sorted(int(file.parent.name[5:]) for file in checkpoints.glob("step_*/state.json"))
    needed = (
        {steps[-1], read_state(checkpoints / f"step_{steps[-1]:06d}")["best"]["step"]} if steps else set()
    )
    for step in needed:
        for name in ROLE_OF:
            if name != "reference":
                assert read_set(checkpoints / f"step_{step:06d}", name, None, 0)
    return steps


@pytest.mark.long
def test_five_kills_change_nothing_and_the_best_checkpoint_is_retained(tmp_path):
    config = prepare(tmp_path, [*SMALL, *SINGLE_CARD, *RULES])
    _, file, output = specify(tmp_path, "grpo", config)
    code, messages = attempt(file)
    assert code == 0, messages
    expected = metrics(output), load(output / "train" / "rank_0" / "model.safetensors")
    completions = files(output)
    assert len(completions) == 11
    result = json.loads((output / "result.json").read_text(encoding="utf-8"))
    assert (result["best_step"], result["weights_of_step"], result["steps"]) == (4, 4, 10)

    checkpoints = tmp_path / "work" / "grpo" / "checkpoints"
    (tmp_path / "work" / "grpo").rename(tmp_path / "uninterrupted")
    for place in KILLS:
        _, file, output = specify(tmp_path, "grpo", config)  # an empty output, the work directory as it is
        code, messages = attempt(file, *place)
        assert code == -signal.SIGKILL, (place, code, messages)
        complete(checkpoints)
    assert complete(checkpoints)
    _, file, output = specify(tmp_path, "grpo", config)
    code, messages = attempt(file)
    assert code == 0, messages
    again = json.loads((output / "result.json").read_text(encoding="utf-8"))
    assert again.pop("resumed_from") and not result.pop("resumed_from")
    for item in (again, result):
        item.pop("peak_memory_gib")  # of processes that did unlike shares of the work
    assert again == result
    assert files(output) == completions
    for row, second in zip(metrics(output), expected[0], strict=True):
        assert {name: row.get(name) for name in SAME} == {name: second.get(name) for name in SAME}
    for name, array in load(output / "train" / "rank_0" / "model.safetensors").items():
        np.testing.assert_array_equal(array, expected[1][name], err_msg=name)
