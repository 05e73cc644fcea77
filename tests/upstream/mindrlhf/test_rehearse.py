"""grpoflow rehearse with mindrlhf itself; with a small vocabulary, for Qwen's takes minutes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.config.compose import compose
from stages.base.reader import read
from stages.engines.mindrlhf.config import VERSIONS
from stages.fetch.stage import build_model
from stages.models.config import ModelConfig
from tests.upstream.mindrlhf.boxed_model import special_ids

Find = Callable[[str], Path]
pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
QUESTIONS = [(f"Ann has {a} pens and {b} more. How many?", a + b) for a in range(1, 9) for b in range(1, 3)]


@pytest.fixture
def recipe(tmp_path, checkout, interpreter):
    """Everything but the checkout of mindrlhf."""
    data, model = tmp_path / "data", tmp_path / "model"
    data.mkdir()
    model.mkdir()
    for name in ("train", "test"):
        rows = [{"question": question, "answer": f"Both: #### {total}"} for question, total in QUESTIONS]
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = compose(["model=tiny", "model.max_position_embeddings=2048"])["model"]
    said = [f"So. The answer is \\boxed{{{total}}}." for _, total in QUESTIONS]
    texts = [*said, *(question for question, _ in QUESTIONS)]
    build_model(read(ModelConfig, values, "model"), iter(texts), 0, model)
    (model / "model.safetensors").unlink()  # a rehearsal needs no weights
    return [
        "engine=mindrlhf", "model=tiny", "model.source=local", f"model.path={model}", *special_ids(model),
        "model.max_position_embeddings=2048", "dataset=gsm8k", f"dataset.path={data}", "layout=dp1_mp2_pp1",
        "train.prompts_per_step=8", "train.checkpoint_every=5", "tokenize.max_prompt_length=200",
        f"engine.mindformers_home={checkout('mindformers-051d65f')}",
        f"engine.python={interpreter('mindspore')}", f"store={tmp_path / 'store'}",
    ]  # fmt: skip


def told_of(out, state=None):
    """What the report of a rehearsal says that printed `out`, of the proofs in a state."""
    report = json.loads((Path(out.rpartition("=")[2].strip()).parent / "report.json").read_text())
    return {proof["what"]: proof["told"] for proof in report["proofs"] if state in (None, proof["state"])}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recipe_passes_and_plan_knows(checkout, recipe, version, capsys):
    recipe = [*recipe, f"engine.mindrlhf_home={checkout(f'mindrlhf-{version}')}"]
    assert main(["rehearse", *recipe]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("rehearsal passed proven=11 failed=0 unproven=5 report=")
    told = told_of(out)
    assert told["resumed"] == "killed (SIGKILL) after checkpoint 0_2; went on from 0_2, 3 steps in all"
    assert told["rewards varied"] == "per step: 0 to 1, 0 to 1, 0 to 1"
    main(["plan", *recipe])
    assert "not rehearsed" not in capsys.readouterr().out


def test_a_reward_that_is_never_earned_fails_with_its_cause(checkout, recipe, capsys):
    broken = ["dataset.solution=answer", f"engine.mindrlhf_home={checkout('mindrlhf-e8a8fc1')}"]
    assert main(["rehearse", *recipe, *broken]) == 1
    failed = told_of(capsys.readouterr().out, "failed")
    assert failed.keys() == {"rewards varied", "gradient norm above 0", "training changed the weights"}
    assert "reward.functions=qwen_accuracy: can't be earned" in failed["rewards varied"]


@pytest.mark.parametrize(("pays", "code"), [("0.5 * reward", 0), ("0.5", 1)])
def test_the_users_own_reward_in_the_checkout_is_what_is_rehearsed(
    tmp_path, checkout, recipe, pays, code, capsys
):
    mine = Path(shutil.copytree(checkout("mindrlhf-e8a8fc1"), tmp_path / "mine"))
    file, line = mine / "mindrlhf/reward/reward_fn.py", '(completions, solution, model_name="qwen")\n'
    before, after = file.read_text(encoding="utf-8").split(line)
    file.write_text(f"{before}{line}    rewards = [{pays} for reward in rewards]\n{after}", encoding="utf-8")
    assert main(["rehearse", *recipe, f"engine.mindrlhf_home={mine}"]) == code
    told = told_of(capsys.readouterr().out)["rewards varied"]
    if code == 0:
        assert told == "per step: 0 to 0.5, 0 to 0.5, 0 to 0.5"
    else:
        assert "pay every completion alike" in told


def test_a_checkout_with_a_moved_place_is_refused(tmp_path, checkout, recipe, capsys):
    edited = tmp_path / "edited"
    shutil.copytree(checkout("mindrlhf-e8a8fc1"), edited)
    file = edited / "mindrlhf" / "worker" / "infer_worker.py"
    file.write_text(file.read_text().replace("def _allgather_data", "def _gather_data"))
    assert main(["rehearse", *recipe, f"engine.mindrlhf_home={edited}"]) == 2
    told = capsys.readouterr().err
    assert f"{file}: has no InferWorker._allgather_data" in told
    assert "engine.mindrlhf_home" in told
