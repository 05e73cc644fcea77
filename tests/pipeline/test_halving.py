"""Early stop of a sweep's trainings: the rule beside Optuna's, and sweeps whose stages take no time."""

import json
import random
import time
from pathlib import Path

import pytest

from launch.process.child import Outcome
from pipeline.cli import main
from pipeline.run import build, notify
from pipeline.run.halving import Halving, StoppedEarly, goes_on, rung_steps
from pipeline.store import history
from pipeline.store.store import Store
from tests.pipeline.artifacts import RESULT, required_of
from tests.pipeline.plans import planned

ASHA = ["sweep.stop=asha", "sweep.reduction_factor=2", "train.steps=8", "train.validate_every=1"]
"""Rungs after steps 1, 2 and 4."""
GOOD, BAD = "train.learning_rate=0.001", "train.learning_rate=1e-09"


@pytest.fixture(autouse=True)
def location(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("reduction_factor", [2, 3, 4])
@pytest.mark.parametrize("first_check", [1, 2])
def test_decisions_are_those_of_optunas_pruner(reduction_factor, first_check, tmp_path):
    """Trainings report checks in a random order of arrival, with equal accuracies among them."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    checks, chance = 20, random.Random(10 * reduction_factor + first_check)
    overrides = ["sweep.stop=asha", f"train.steps={5 * checks}", "train.validate_every=5"]
    overrides += [f"sweep.reduction_factor={reduction_factor}", f"sweep.first_check={first_check}"]
    pruner = optuna.pruners.SuccessiveHalvingPruner(
        min_resource=first_check, reduction_factor=reduction_factor, min_early_stopping_rate=0
    )
    study = optuna.create_study(direction="maximize", pruner=pruner)
    plans = [planned(*overrides, f"seed={seed}") for seed in range(24)]
    halving = Halving(tmp_path, "0123abcd", plans[0].config.sweep)
    trials = [study.ask() for _ in plans]
    going, reported, stopped = list(range(len(plans))), [0] * len(plans), 0
    while going:
        number = chance.choice(going)
        reported[number] += 1
        accuracy = chance.randrange(12) / 12
        metrics = tmp_path / f"{number}.jsonl"
        with metrics.open("a") as file:
            row = {"step": 5 * reported[number], "validation_accuracy": accuracy}
            file.write(json.dumps(row) + "\n")
        trials[number].report(accuracy, step=reported[number])
        ends = reported[number] == checks  # the last check stops nothing
        prunes = not ends and trials[number].should_prune()
        try:
            halving.check(plans[number], metrics)
        except StoppedEarly:
            assert prunes, (number, reported[number])
            stopped += 1
        else:
            assert not prunes, (number, reported[number])
        if prunes or ends:
            going.remove(number)
    assert 0 < stopped < len(plans)


@pytest.mark.parametrize(
    ("accuracy", "others", "reduction_factor", "expected"),
    [
        (0.0, [], 3, (True, 0.0)),
        (0.5, [0.5], 3, (True, 0.5)),
        (0.4, [0.5], 3, (False, 0.5)),
        (0.4, [0.5, 0.1, 0.2], 2, (True, 0.4)),
        (0.4, [0.5, 0.1, 0.2], 3, (False, 0.5)),
        (0.3, [0.9, 0.8, 0.3, 0.2, 0.1], 2, (True, 0.3)),
    ],
)
def test_the_best_part_goes_on(accuracy, others, reduction_factor, expected):
    assert goes_on(accuracy, others, reduction_factor) == expected


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        ("train.steps=32 train.validate_every=3", [3, 9, 27]),
        ("train.steps=27 train.validate_every=3", [3, 9]),
        ("train.steps=32 train.validate_every=3 sweep.first_check=2 sweep.reduction_factor=2", [6, 12, 24]),
        ("train.steps=32", []),
    ],
)
def test_rungs_are_further_and_further_apart(overrides, steps):
    config = planned(*overrides.split()).config
    assert list(rung_steps(config.train, config.sweep)) == steps


def test_early_stop_changes_no_artifact():
    overrides = ["train.validate_every=4"]
    assert [spec.key for spec in planned(*overrides).specs] == [
        spec.key for spec in planned(*overrides, "sweep.stop=asha", "sweep.first_check=2").specs
    ]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ("", "sweep.stop=asha"),
        ("train.validate_every=32", "sweep.stop=asha"),
        ("train.validate_every=4 sweep.first_check=8", "sweep.first_check=8"),
        ("train.validate_every=4 sweep.reduction_factor=1", "sweep.reduction_factor=1"),
        ("engine=supervised experiment=sft_qwen2_5_0_5b", "sweep.stop=asha"),
        ("train.validate_every=4,8", "train.validate_every"),
        ("train.validate_every=4 sweep.first_check=1,2", "sweep.first_check"),
    ],
)
def test_what_could_stop_nothing_is_refused(overrides, key, shown):
    words = ["sweep", "--plan", "store=s", "train.beta=0.01,0.02", "sweep.stop=asha", *overrides.split()]
    assert key in shown(*words, code=2).err


class Trainings:
    """Stages that take no time, and trainings whose accuracy is known."""

    def __init__(self, accuracies: dict[float, float]) -> None:
        """`accuracies`: learning rate -> accuracy of all checks."""
        self.accuracies, self.pause_s = accuracies, 0.0
        self.file = Path("trained")
        """One line per end of a training: learning rate, steps, how it ended."""

    def run(self, command, *, log_dir, on_poll, **ignored):
        """Do the work of a stage; a training goes on after its last step, like one with checkpoints."""
        spec = json.loads((log_dir / "spec.json").read_text())
        if spec["stage"] == "grpo":
            self.train(spec["config"]["train"], Path(spec["work"]), on_poll)
        content = {**required_of(spec), "result.json": json.dumps(RESULT).encode()}
        metrics = Path(spec["work"]) / "metrics.jsonl"
        if metrics.exists():
            content["metrics.jsonl"] = metrics.read_bytes()
        for name, written in content.items():
            file = Path(spec["output"]) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(written)
        return Outcome(time.time() - 1, time.time(), 0.0)

    def train(self, train, work, on_poll):
        """Write the metrics of the remaining steps."""
        metrics, rate = work / "metrics.jsonl", train["learning_rate"]
        step = done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
        try:
            on_poll()
            for step in range(done + 1, train["steps"] + 1):
                with metrics.open("a") as file:
                    row = {"step": step, "reward": 0.1, "validation_accuracy": self.accuracies[rate]}
                    file.write(json.dumps(row) + "\n")
                time.sleep(self.pause_s)
                on_poll()
        except BaseException as error:
            self.end(rate, step, type(error).__name__)
            raise
        self.end(rate, step, f"finished from {done}")

    def end(self, rate, step, how):
        """Note the end of a training."""
        with self.file.open("a") as file:
            file.write(f"{rate} {step} {how}\n")

    def ended(self):
        """Return the ends of trainings since the last call."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def trainings(monkeypatch, location):
    """Replace all stages; a training with a tiny learning rate finds no right answer."""
    trainings = Trainings({0.001: 0.5, 0.0005: 0.6, 1e-09: 0.0})
    monkeypatch.setattr(build.job, "run", trainings.run)
    return trainings


def points(location):
    """Return the points in the record of the only sweep."""
    (file,) = location.glob("s/sweeps/*/sweep.json")
    return json.loads(file.read_text())["points"]


def sweep(*words, code=0, cards=1):
    assert main(["sweep", "--cards", str(cards), "store=s", "layout=dp1_mp1_pp1", *ASHA, *words]) == code


def stages_of(location):
    """Return how many artifacts each stage has."""
    return {
        stage: len([*location.glob(f"s/{stage}/[!.]*")]) for stage in ("grpo", "evaluate", "export", "report")
    }


def test_a_point_that_falls_behind_is_stopped_early(location, trainings, capsys, monkeypatch):
    sent = []
    monkeypatch.setattr(notify, "notify", lambda *arguments, **more: sent.append((*arguments, more)))
    sweep("train.learning_rate=0.001,1e-09,0.0005")
    ended = ["1e-09 1 StoppedEarly", "0.0005 8 finished from 0", "0.001 8 finished from 0"]
    assert sorted(trainings.ended()) == sorted(ended)
    assert stages_of(location) == dict.fromkeys(("grpo", "evaluate", "export", "report"), 2)
    good, bad, better = points(location)
    assert (good["state"], bad["state"], better["state"]) == ("finished", "stopped early", "finished")
    expected = {"number": 1, "step": 1, "accuracy": 0.0, "needed": 0.5, "compared": 2, "goes_on": False}
    assert {key: bad["rung"][key] for key in expected} == expected
    assert bad["message"] == "rung 1, after step 1: accuracy 0, and 0.5 was needed among 2 trainings"
    assert bad["result"] == {} and good["rung"] is None
    output = capsys.readouterr()
    assert f"stopped early: {bad['message']}" in " ".join(output.out.split())
    assert "error: " not in output.err and "Traceback" not in output.err
    assert "3 points (2 finished, 1 stopped early)" in output.out
    (table,) = location.glob("s/sweeps/*/table.csv")
    assert f'stopped early,1e-09,,,,,,{bad["run"]},"{bad["message"]}"' in table.read_text()
    run = history.runs(location / "s")[bad["run"]]
    assert (run.state, run.failed_stage, run.message) == ("stopped early", "grpo", bad["message"])
    (_, _, state, more) = sent[-1]
    assert state == "finished" and more["points"] == {"finished": 2, "stopped early": 1}
    assert main(["runs", "store=s"]) == 0
    assert "stopped early in grpo" in capsys.readouterr().out


def test_the_same_command_leaves_a_stopped_point_alone_and_its_own_trains_it_to_the_end(
    location, trainings, capsys
):
    words = ["train.learning_rate=0.001,1e-09"]
    sweep(*words)
    stopped = points(location)[1]
    trainings.ended()
    sweep(*words)
    assert trainings.ended() == []
    assert points(location)[1] == stopped
    capsys.readouterr()
    assert main(["sweep", "--plan", "store=s", "layout=dp1_mp1_pp1", *ASHA, *words]) == 0
    planned_text = " ".join(capsys.readouterr().out.split())
    assert "rungs after steps 1, 2, 4" in planned_text and "1 of 2 points were stopped early" in planned_text
    assert "0 stages to run" in planned_text

    assert main(["run", *stopped["overrides"]]) == 0
    assert trainings.ended() == ["1e-09 8 finished from 1"]
    sweep(*words)
    assert [point["state"] for point in points(location)] == ["finished"] * 2 and trainings.ended() == []


def test_a_new_sweep_compares_with_what_the_store_has(location, trainings):
    assert main(["run", "store=s", "layout=dp1_mp1_pp1", *ASHA, GOOD]) == 0
    trainings.ended()
    sweep("train.learning_rate=1e-09,0.001")  # the first training of this process
    assert trainings.ended() == ["1e-09 1 StoppedEarly"]


def test_points_with_the_same_training_are_stopped_together(location, trainings):
    sweep("train.learning_rate=0.001,1e-09", "evaluate.sample_prompts=4,8")
    assert len(trainings.ended()) == 2
    states = [(point["overrides"][-2], point["state"]) for point in points(location)]
    assert states == [(GOOD, "finished")] * 2 + [(BAD, "stopped early")] * 2
    assert stages_of(location) == {"grpo": 1, "evaluate": 2, "export": 2, "report": 2}
    known = history.runs(location / "s")
    stopped = [known[point["run"]] for point in points(location)[2:]]
    assert [(run.state, run.failed_stage) for run in stopped] == [("stopped early", "grpo")] * 2


def test_points_in_parallel_are_compared(location, trainings):
    trainings.pause_s = 0.02
    sweep("train.learning_rate=0.001,1e-09,0.0005", cards=3)
    ended = {line.split()[0]: line.split()[2] for line in trainings.ended()}
    states = [point["state"] for point in points(location)]
    assert (states[1], ended["1e-09"]) == ("stopped early", "StoppedEarly")
    assert "finished" in states and set(states) == {"finished", "stopped early"}


def test_a_killed_sweep_keeps_its_decisions(location, trainings, monkeypatch):
    """Only the record of rungs and the history of the killed process are left."""
    words = ["train.learning_rate=0.001,1e-09,0.0005"]
    report = trainings.end

    def end(rate, step, how):
        report(rate, step, how)
        if rate == 0.0005:
            raise KeyboardInterrupt

    monkeypatch.setattr(trainings, "end", end)
    with pytest.raises(KeyboardInterrupt):
        sweep(*words)
    for file in (*location.glob("s/sweeps/*/sweep.json"), *location.glob("s/sweeps/*/table.csv")):
        file.unlink()
    monkeypatch.setattr(trainings, "end", report)
    trainings.ended()
    sweep(*words)
    assert trainings.ended() == ["0.0005 8 finished from 8"]
    assert [point["state"] for point in points(location)] == ["finished", "stopped early", "finished"]


def test_force_decides_anew(location, trainings):
    words = ["train.learning_rate=0.001,1e-09"]
    sweep(*words)
    trainings.accuracies[1e-09] = 0.9
    for file in location.glob("s/.work/grpo-*/metrics.jsonl"):
        file.unlink()
    sweep(*words, "--force", "grpo")
    assert points(location)[1]["state"] == "finished"


def test_a_damaged_record_of_rungs_is_replaced(location, trainings):
    plan = planned("store=s", "layout=dp1_mp1_pp1", *ASHA, GOOD)
    halving = Halving(Store(location / "s").root, "0123abcd", plan.config.sweep)
    file, metrics = location / "s/sweeps/0123abcd/rungs.json", location / "metrics.jsonl"
    metrics.write_text('{"step": 1, "validation_accuracy": 0.5}\n{"step": 2, "reward": 0.5}\n')
    file.parent.mkdir(parents=True)
    for damaged in ("", "{}", '[{"artifact": 1}]', "[[]]"):
        file.write_text(damaged)
        assert halving.stop_of(plan) is None
    halving.check(plan, metrics)
    (rung,) = json.loads(file.read_text())
    assert (rung["step"], rung["accuracy"], rung["goes_on"]) == (1, 0.5, True)
