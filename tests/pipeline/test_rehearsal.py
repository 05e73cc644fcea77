"""grpoflow rehearse: the command, and the small configurations and the proof of engine=mindspeed_rl."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.cli import main
from pipeline.cli.rehearse import REPORT, has_passed
from pipeline.config import rules
from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.errors import Problem, StageFailed
from pipeline.plan.graph import Plan
from pipeline.rehearsal import mindspeed_rl, verl
from pipeline.rehearsal.scratch import Scratch
from pipeline.run import signals
from pipeline.store.leases import locked
from stages import engines
from stages.base.errors import InputError
from stages.base.reader import read
from stages.engines import local
from stages.engines.mindspeed_rl.job import layer_list
from stages.engines.mindspeed_rl.rehearsal.cpu import ROWS, on_single_card, shrink
from stages.engines.rehearsal import Proof

LOCAL = local.ENGINE
READ = Proof("data read", "proven", "4 prompts")
LOST = Proof("loss finite", "failed", "nan | <b>")
OPEN = Proof("vLLM", "unproven", "not here")
BROKEN = InputError("file", None, "is broken", "mend it")
problems: list[Problem] = []
proofs: list[Proof | BaseException] = []


def refusals(plan: Plan) -> list[Problem]:
    """Return the problems that a test chose."""
    return problems


def rehearse(plan: Plan, stages: Scratch) -> Iterator[Proof]:
    """Yield the proofs that a test chose."""
    assert [path.name for path in stages.root.iterdir()] == ["store"]
    (stages.root / "left").touch()
    for proof in proofs:
        if isinstance(proof, BaseException):
            raise proof
        yield proof


@pytest.fixture(autouse=True)
def engine(tmp_path, monkeypatch):
    """Make this module the rehearsal of engine=local."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rehearsable = copy.copy(LOCAL)
    vars(rehearsable).update(rehearsal=__name__, unrehearsed="")
    use(monkeypatch, rehearsable)
    monkeypatch.setattr(signals, "install", lambda: None)  # of this process
    problems.clear()
    yield
    engines.get.cache_clear()


def use(monkeypatch, local_engine):
    """Let an engine be engine=local."""
    monkeypatch.setattr(local, "ENGINE", local_engine)
    engines.get.cache_clear()


@pytest.fixture
def rehearsed(tmp_path):
    """Rehearse; return the exit code and the directory of the report."""

    def run(*result, overrides=()):
        proofs[:] = result
        code = main(["rehearse", f"store={tmp_path / 'store'}", *overrides])
        return code, next((tmp_path / "store").glob(".rehearsals/*"), None)

    return run


@pytest.mark.parametrize(
    ("result", "code", "counts"),
    [
        ([READ, OPEN], 0, "passed proven=1 failed=0 unproven=1"),
        ([READ, LOST, OPEN], 1, "failed proven=1 failed=1 unproven=1"),
        ([READ, BROKEN], 1, "failed proven=1 failed=1 unproven=0"),
        ([OPEN], 1, "failed proven=0 failed=0 unproven=1"),
    ],
)
def test_proofs_decide_and_only_a_failure_leaves_files(result, code, counts, rehearsed, capsys):
    actual, path = rehearsed(*result)
    assert actual == code
    assert capsys.readouterr().out.splitlines()[-1] == f"rehearsal {counts} report={path / 'report.json'}"
    assert json.loads((path / "report.json").read_text())["passed"] is (code == 0)
    assert (path / "scratch" / "local" / "left").exists() is (code == 1)


def test_a_refusal_comes_before_anything_is_written(rehearsed, capsys):
    problems.append(Problem("engine.python", None, "does not answer", "make one"))
    assert rehearsed(READ) == (2, None)
    assert "engine.python: does not answer; make one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["engine=local"], "runs on a CPU itself"),
        (["experiment=mindrlhf_one_stage_7b"], "dev branch"),
        (["experiment=mindrlhf_7b", "train.schedule=constant"], "builds a CosineDecayLR whatever"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_with_the_reason(rehearsed, capsys, monkeypatch, overrides, why):
    use(monkeypatch, LOCAL)
    assert rehearsed(READ, overrides=overrides)[0] == 2
    assert why in capsys.readouterr().err


def test_a_rehearsal_stays_on_this_machine_and_reports_a_killed_program(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/usr/bin/env bash\nkill -KILL $$\n")
    python.chmod(0o755)
    small = load(["experiment=verl_7b", "model.path=/models/qwen", f"engine.python={python}"])
    scratch = Scratch(tmp_path)
    proof = next(verl.rehearse(scratch.plan(small.plain()), scratch))
    assert (proof.state, proof.told) == ("failed", "validate.py: exit code -9")
    two = scratch.plan(load(["launcher.cards_per_node=1"]).plain()).config
    assert two.launcher.cards_per_node == two.cards == 2


def test_a_second_rehearsal_of_the_same_plan_does_not_disturb_the_first(rehearsed, capsys):
    code, path = rehearsed(LOST)
    assert code == 1
    with locked(path / "lock", path):
        assert rehearsed(LOST)[0] == 1
        assert "is being rehearsed by another process" in capsys.readouterr().err
        assert (path / "scratch" / "local" / "left").exists() and (path / REPORT).exists()
    assert rehearsed(READ)[0] == 0


def test_what_is_interrupted_has_not_passed(rehearsed, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        rehearsed(READ, KeyboardInterrupt())
    assert not list(tmp_path.rglob(REPORT))


RECIPES = (
    ["model=qwen2_5_7b", "layout=dp4_mp2_pp2", "layout.generate.model_parallel=1"],
    ["model=qwen2_5_7b", "layout=dp1_mp4_pp3", "layout.train.offset=[1,0,0]"],
    ["model=qwen2_5_32b", "layout=dp1_mp4_pp4", "layout.train.offset=[0,1,0,-1]"],
    ["model=qwen2_5_0_5b", "layout=dp2_mp2_pp1", "engine.use_integrated_worker=false"],
    ["model=qwen2_5_7b", "layout=dp4_mp2_pp2", "+engine.env.PYTHONPATH=/own"],
)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe[1])
def test_the_small_configurations_of_mindspeed_rl_break_no_rule(recipe):
    fixed = ["train.prompts_per_step=384", "launcher.cards_per_node=64", "dataset=gsm8k"]
    config = load(["engine=mindspeed_rl", "model.path=/models/qwen", *fixed, *recipe])
    values = config.plain()
    small = shrink(values, Path("/scratch/model"))
    assert config.plain() == values  # the run's own stays
    made = read(Config, small)
    assert rules.check(made) == []
    assert made.layout == config.layout and made.cards == config.cards
    assert made.dataset.train_rows == ROWS and made.model.vocab_size == config.model.vocab_size
    assert bool(layer_list(made.model, made.layout.train)) == bool(
        layer_list(config.model, config.layout.train)
    )
    assert str(made.engine.env["PYTHONPATH"]).split(":")[1:] == (["/own"] if "env" in recipe[-1] else [])
    single = read(Config, on_single_card(small))
    assert rules.check(single) == []
    assert single.layout.train.cards == 1 and single.model == made.model


LOGS = Path(__file__).parents[1] / "data" / "logs" / "failed"
ENDS = {
    "mindspeed_rl_msadapter": ("proven", "where MSAdapter is required"),
    "mindspeed_rl_msadapter_667a547": ("proven", "where MSAdapter is required"),
    "mindspeed_rl_static_self": ("failed", "check out c21465a, which engine=mindspeed_rl supports"),
    "mindspeed_rl_rank": ("failed", "worker_0.log"),
    None: ("failed", "no machine without NPUs can train"),
}


@pytest.mark.parametrize("end", ENDS)
def test_only_the_known_failure_of_train_grpo_is_a_proof(end):
    def build(planned, stage):
        if stage == "grpo" and end is not None:
            raise StageFailed(stage, "exit code 1", LOGS / end / "worker_0.log", [])

    stages: Any = SimpleNamespace(build=build)
    proof = mindspeed_rl._started(cast(Any, None), stages)
    state, message = ENDS[end]
    assert proof.state == state and message in proof.told
    assert has_passed([proof, *mindspeed_rl.UNPROVEN]) is (state == "proven")
