"""engine=mindspeed_rl around stand-in checkouts (tests/data/mindspeed_rl_standin): real Ray, two NPUs."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import CHEAP, run_plain
from tests.e2e.mindrlhf import rows, standin
from tests.e2e.outside import SFT, artifact, sourced, surrounded
from tests.e2e.outside import weights_moved as outside_moved
from tests.processes import living

pytest.importorskip("ray", reason="the engine's interpreter is this one: pip install 'grpoflow[test]'")

HOME = Path(__file__).parents[1] / "data" / "mindspeed_rl_standin"
STEPS = 4
BASE = [
    *[override for override in CHEAP if not override.startswith(("sft.", "train."))],
    "model.num_hidden_layers=2",  # for pipelines of two stages
    "engine=mindspeed_rl",
    f"engine.mindspeed_rl_home={HOME / 'head'}",
    f"engine.mindspeed_llm_home={HOME / 'llm'}",
    f"engine.python={sys.executable}",
    "engine.workers=1",
    "engine.micro_batch_size=1",
    "engine.cpus_per_npu=1",
    "tokenize.max_prompt_length=128",
    "engine.ray_options=['--num-cpus=6','--object-store-memory=80000000']",
    "layout=dp1_mp2_pp1",
    f"train.steps={STEPS}",
    "train.prompts_per_step=4",
    "train.checkpoint_every=2",
]


def run(store, *overrides):
    return run_plain(store, *BASE, *overrides)


def weights_moved(store, start="fetch"):
    """Return by how many units in the last place each weight of two exported models differs."""
    return moved(artifact(store, start), artifact(store, "export"))


def moved(old, new):
    """The same of two directories."""
    from stages.weights.tensors import load

    before, after = load(old), load(new)
    assert before.keys() == after.keys()
    result = set()
    for name, value in before.items():
        bits = (after[name].view(np.int32) - value.view(np.int32)).ravel()
        result |= set(bits.tolist())
    return result


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A store in which everything before grpo is done; grpo was ended by a dead worker in iteration 3."""
    store = tmp_path_factory.mktemp("mindspeed_rl") / "store"
    done = run(store, standin("die@3:1"))
    assert done.exit_code == 1 and "out of memory, said worker 1" in done.stderr, done.stderr
    assert not living(store)
    assert not list(store.glob("grpo/*/manifest.json"))
    return store


@pytest.fixture
def store(prepared, tmp_path):
    return Path(shutil.copytree(prepared, tmp_path / "store", symlinks=True))


def finished(store, *overrides):
    """Run to the end, and look at all that comes home."""
    done = run(store, *overrides)
    assert done.exit_code == 0, done.stderr
    assert not living(store)
    assert [row["step"] for row in rows(store)] == list(range(1, STEPS + 1))
    assert [row["reward"] for row in rows(store)] == [step / 8 for step in range(1, STEPS + 1)]
    kl = [row["kl"] for row in rows(store)]  # the reference is the original, not what the run goes on from
    assert kl == pytest.approx([step / 1000 for step in range(1, STEPS + 1)])
    assert weights_moved(store) == {STEPS}
    assert float(done.result["gain"]) == 0
    return done


def test_its_result_is_exported_and_evaluated_and_it_runs_in_its_container(tmp_path):
    done = finished(tmp_path / "store", *surrounded(tmp_path))
    assert Path(done.result["report"]).read_text().startswith("<!DOCTYPE html>")
    stages = ("convert", "export", "grpo", "tokenize")
    assert sorted(sourced(tmp_path)) == [(stage, "yes") for stage in stages]


@pytest.mark.long
@pytest.mark.parametrize(
    ("window", "layout", "back"), [("window", "dp1_mp2_pp1", "mg2hg"), ("head", "dp1_mp2_pp2", "mg2hf")]
)
def test_both_windows_and_a_pipeline_come_home(store, window, layout, back):
    home = [f"engine.mindspeed_rl_home={HOME / window}", f"layout={layout}"]
    done = run(store, *home, f"+engine.env.STANDIN_BACK={back}")
    assert done.exit_code == 0, done.stderr
    assert weights_moved(store) == {STEPS}


@pytest.mark.long
def test_it_starts_from_what_mindformers_has_trained(tmp_path):
    store = tmp_path / "store"
    done = run(store, *SFT, "mindformers.batch_size=8", "tokenize.sft_length=200")
    assert done.exit_code == 0, done.stderr
    updates = json.loads((artifact(store, "sft") / "result.json").read_text())["steps"]
    assert updates > 0
    assert outside_moved(store, "fetch", "sft") == {float(updates)}
    assert weights_moved(store, "sft") == {STEPS}
