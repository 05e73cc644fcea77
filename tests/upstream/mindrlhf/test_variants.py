"""What else mindrlhf can be asked for on one machine, and what can go wrong there."""

import shutil
from pathlib import Path

import pytest

from stages.weights.tensors import load
from tests.e2e.outside import artifact, result
from tests.processes import living
from tests.upstream.mindrlhf.runs import Recipe, finish, logs, run
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


def test_a_reward_that_breaks_is_named_and_the_run_goes_on_when_it_is_mended(upstream, tmp_path):
    """A user's own change of the checkout; it breaks in the second step."""
    recipe = upstream("e8a8fc1")
    home = Path(shutil.copytree(recipe.home, tmp_path / "mindrlhf"))
    source, flag = home / "mindrlhf/reward/reward_fn.py", tmp_path / "asked"
    text, line = source.read_text(encoding="utf-8"), "    rewards, answer_parsed_lst = accuracy_reward("
    assert text.count(line) == 1
    broken = (
        "    import os\n"
        f"    if os.path.exists({str(flag)!r}):\n"
        "        raise ZeroDivisionError('my reward')\n"
        f"    open({str(flag)!r}, 'w').close()\n"
    )
    source.write_text(text.replace(line, broken + line), encoding="utf-8")
    recipe_here = Recipe(recipe.model, home, recipe.engine)
    store = tmp_path / "store"
    failed = run(store, recipe_here.overrides())
    assert failed.exit_code == 1
    assert "ZeroDivisionError: my reward" in failed.stderr and "worker_0.log" in failed.stderr
    assert not list(store.glob("grpo/*/manifest.json")) and not living(store)
    source.write_text(text, encoding="utf-8")
    done = run(store, recipe_here.overrides())
    assert done.exit_code == 0, done.stderr
    assert result(store, "grpo")["resumed_from"] == [0, 1]
    check_finished(store)
