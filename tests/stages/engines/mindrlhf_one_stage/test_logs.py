"""What the script prints, the trial before training included."""

import pytest

from stages.engines.mindrlhf_one_stage.logs import LogReader

LATEST = """\
Make experience begin at 10:00:00
all_elements_compeltion_len mean: 9.0
Avg scores:  0.9
Make experience, end at 10:00:03, elapsed time 3.0 s-------------------------------
train over is not what is said here
--------- epoch:0 step:0 ---------
Make experience begin at 10:00:10
all_elements_compeltion_len mean: 312.25
all_mean_grouped_rewards:  [0.5, 1.5]
Avg scores:  1.0
Make experience, end at 10:00:20, elapsed time 10.0 s-------------------------------
steps 1, end at 10:00:22, elapsed time 2.0 s
 loss: 0.25 | lr: [1.e-07] | is overflow: False | loss scale: 4096.0
steps 2, end at 10:00:24, elapsed time 2.0 s
 loss: 0.75 | lr: [2.e-07] | is overflow: True | loss scale: 2048.0
train over
""".splitlines()


def test_the_trial_generation_is_not_counted_as_a_step():
    reader = LogReader(9)
    rows = [row for line in LATEST if (row := reader.read(line))]
    assert rows == [
        (
            {
                "step": 1, "reward": 1.0, "completion_characters": 312.25, "loss": 0.5, "lr": 2e-7,
                "overflow": 0.5, "updates": 2.0, "step_s": 14.0,
            },
            9,
        )
    ]  # fmt: skip


@pytest.mark.parametrize("score", ["nan", "1e-3", "0"])
def test_scores_in_every_form(score):
    reader = LogReader(1)
    for line in ("--------- epoch:0 step:0 ---------", f"Avg scores:  {score}"):
        assert reader.read(line) is None
    row, _ = reader.read("train over") or ({}, 1)
    assert str(row["reward"]) == str(float(score))
