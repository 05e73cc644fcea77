"""grpoflow rehearse with mindrlhf itself; with a small vocabulary, for Qwen's takes minutes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli import main
from stages.engines.mindrlhf.config import VERSIONS
from tests.upstream.mindrlhf.rehearsals import RECIPES, overrides, write_inputs

Find = Callable[[str], Path]
pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]


@pytest.fixture
def recipe(tmp_path, checkout, interpreter):
    """Everything but the checkout of mindrlhf."""
    return [
        *write_inputs(tmp_path),
        f"engine.mindformers_home={checkout('mindformers-051d65f')}",
        f"engine.python={interpreter('mindspore')}",
    ]


def reported(out, state=None):
    """Return the proofs of one state in the report of a rehearsal that printed `out`."""
    report = json.loads((Path(out.rpartition("=")[2].strip()).parent / "report.json").read_text())
    return {proof["what"]: proof["told"] for proof in report["proofs"] if state in (None, proof["state"])}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recipe_passes(checkout, recipe, version, capsys):
    recipe = [*recipe, f"engine.mindrlhf_home={checkout(f'mindrlhf-{version}')}"]
    assert main(["rehearse", *recipe]) == 0
    out = capsys.readouterr().out
    proven, unproven = (11, 5) if version == "e8a8fc1" else (10, 6)  # 0cd087455 logs no gradient norms
    counts = f"proven={proven} failed=0 unproven={unproven}"
    assert out.splitlines()[-1].startswith(f"rehearsal passed {counts} report=")
    output = reported(out)
    assert (
        output["resumed"] == "killed (SIGKILL) after checkpoint [0, 1]; resumed from [0, 1], 2 steps in all"
    )
    assert output["rewards varied"] == "per step: 0 to 1, 0 to 1"


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", list(RECIPES)[1:])
def test_every_valid_recipe_passes(tmp_path, checkout, recipe, version, name):
    home = f"engine.mindrlhf_home={checkout(f'mindrlhf-{version}')}"
    assert main(["rehearse", *recipe, home, *overrides(name, tmp_path)]) == 0


def test_a_reward_that_is_never_earned_fails_with_its_cause(checkout, recipe, capsys):
    broken = ["dataset.solution=answer", f"engine.mindrlhf_home={checkout('mindrlhf-e8a8fc1')}"]
    assert main(["rehearse", *recipe, *broken]) == 1
    failed = reported(capsys.readouterr().out, "failed")
    assert failed.keys() == {"rewards varied", "gradient norm above 0", "training changed the weights"}
    assert "reward.functions=qwen_accuracy: can't be earned" in failed["rewards varied"]


@pytest.mark.parametrize(("pays", "code"), [("0.5 * reward", 0), ("0.5", 1)])
def test_the_users_reward_in_the_checkout_is_rehearsed(tmp_path, checkout, recipe, pays, code, capsys):
    home = Path(shutil.copytree(checkout("mindrlhf-e8a8fc1"), tmp_path / "mine"))
    file, line = home / "mindrlhf/reward/reward_fn.py", '(completions, solution, model_name="qwen")\n'
    before, after = file.read_text(encoding="utf-8").split(line)
    file.write_text(f"{before}{line}    rewards = [{pays} for reward in rewards]\n{after}", encoding="utf-8")
    assert main(["rehearse", *recipe, f"engine.mindrlhf_home={home}"]) == code
    output = reported(capsys.readouterr().out)["rewards varied"]
    if code == 0:
        assert output == "per step: 0 to 0.5, 0 to 0.5"
    else:
        assert "pay every completion alike" in output
