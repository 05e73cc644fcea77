import math

import pytest

from stages.engines.mindspeed_rl.logs import read_line

HEAD = (
    "\x1b[36m(train pid=1234, ip=10.0.0.2)\x1b[0m 2026-11-21 15:20:01,000 - INFO - [2026-11-21 15:20:01] "
    "iteration: 3 / 500 | timing/all : 12.5000 | timing/update : 4.0000 | timing/rollout : 6.0000 | "
    "timing/rule_reward : 0.2000 | actor/entropy : 0.3100 | actor/kl_loss : 0.0012 | "
    "actor/pg_loss : 0.0500 | "
    "actor/pg_clipfrac : 0.0040 | actor/grad_norm : 0.9000 | actor/lr : 1.000000e-06 | "
    "base_acc_rewards/mean : 0.2500 | grpo/score/mean : 0.5000 | grpo/score/max : 1.0000 | "
    "grpo/score/min : 0.0000 | response_length/mean : 310.5000 | response_length/max : 2048.0000 | "
    "prompt_length/mean : 180.0000 | e2e_tps : 220.0000 | vllm_tps : 400.0000 | update_tps : 900.0000 \n"
)
WINDOW = (
    "(train pid=9) 2025-06-10 01:02:03 - INFO - [2025-06-10 01:02:03] iteration: 1 / 4 | "
    "grpo/base_acc_rewards/mean : 0.2500 | grpo/lr : 2.000000e-07 | "
    "grad_norm : 1.5000 | grpo/score/mean : 0.7000 | grpo/rewards/mean : -0.5000 | "
    "grpo/rewards/max : 1.0000 | grpo/rewards/min : -1.0000 | timing/all : nan "
)


def test_a_line_of_today_becomes_our_metrics():
    found = read_line(HEAD, cards=16)
    assert found is not None and (found.number, found.total) == (3, 500)
    assert found.row == {
        "step": 3.0, "step_s": 12.5, "train_s": 4.0, "rollout_s": 6.0, "reward_s": 0.2, "entropy": 0.31,
        "kl": 0.0012, "loss": 0.05, "clip_fraction": 0.004, "grad_norm": 0.9, "lr": 1e-06,
        "reward/base_acc": 0.25, "reward": 0.5, "reward_max": 1.0, "reward_min": 0.0,
        "completion_length": 310.5, "completion_length_max": 2048.0, "prompt_length": 180.0,
        "tokens_per_s": 3520.0, "rollout_tokens_per_s": 6400.0, "train_tokens_per_s": 14400.0,
    }  # fmt: skip


def test_the_earlier_window_tells_rewards_besides_scores():
    found = read_line(WINDOW, cards=2)
    assert found is not None
    assert (found.row["reward"], found.row["reward_max"], found.row["reward_min"]) == (-0.5, 1.0, -1.0)
    assert (found.row["lr"], found.row["grad_norm"]) == (2e-07, 1.5)
    assert found.row["reward/base_acc"] == 0.25
    assert math.isnan(found.row["step_s"])


@pytest.mark.parametrize(
    "line",
    [
        "sync start grpo training at iteration: 0/500 ...",
        "checkpoint saved at iteration: 3 / 500",
        "reiteration: 3 / 500 | grpo/score/mean : 1.0 |",
        "",
    ],
)
def test_other_lines_say_nothing(line):
    assert read_line(line, cards=1) is None


def test_a_line_that_a_kill_cut_off_yields_what_is_whole():
    found = read_line("iteration: 2 / 4 | grpo/score/mean : 0.5000 | response_length/me", cards=1)
    assert found is not None and found.row == {"step": 2.0, "reward": 0.5}
