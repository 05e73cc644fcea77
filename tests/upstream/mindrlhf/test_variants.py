"""Settings of mindrlhf on one machine besides those of test_run.py."""

import pytest

from stages.weights.tensors import load
from tests.e2e.outside import artifact
from tests.upstream.mindrlhf.runs import finish, logs
from tests.upstream.mindrlhf.test_run import check_finished

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]


def test_flat_files_two_iterations_recompute_and_a_reference_that_follows(upstream, tmp_path):
    """ms_safetensors, num_iterations 2, the policy copied into the reference after each step, weights off the
    card while they are resharded."""
    done = finish(
        upstream("e8a8fc1"), tmp_path, "engine.load_ckpt_format=ms_safetensors",
        "engine.reshard_mem_opt_level=1", "train.num_iterations=2", "train.ref_model_sync_steps=1",
        "train.ref_model_mixup_alpha=1.0", "train.steps=12", "layout.train.recompute=true",
    )  # fmt: skip
    check_finished(done.store, updates=4)


def test_two_workers_share_the_prompts_and_hold_the_same_weights(upstream, tmp_path):
    done = finish(upstream("e8a8fc1"), tmp_path, "layout=dp2_mp1_pp1")
    check_finished(done.store, updates=1)  # a pack for each of the two
    ranks = [load(artifact(done.store, "grpo") / "train" / f"rank_{rank}") for rank in (0, 1)]
    assert ranks[0].keys() == ranks[1].keys()
    for name, value in ranks[0].items():
        assert (value == ranks[1][name]).all(), name
    assert "run grpo train end" in logs(done.store, worker=1)[0]
