"""Gates: a failed one ends the run before export, after a report that shows it, and retrains nothing."""

import json
from pathlib import Path

import pytest

import grpoflow
from pipeline.cli import main
from pipeline.store import history
from stages.report.gates import GatesConfig, judge
from tests.pipeline.artifacts import RESULT, complete, replace_stages, required_of
from tests.pipeline.plans import planned

BUILT = ("fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split", "sft", "grpo", "evaluate")
"""All stages before export."""
METRICS = "".join(json.dumps({"step": step, "kl": kl}) + "\n" for step, kl in ((1, 0.5), (2, 0.1), (3, 0.3)))


def evaluated(tmp_path, *overrides):
    """Return a store in which evaluate measured an accuracy of 0.5, after 0 before grpo."""
    return complete([f"store={tmp_path}", *overrides], *BUILT, files={"grpo": {"metrics.jsonl": METRICS}})[1]


@pytest.fixture
def built(monkeypatch):
    """The names of the stages that run, in order; export and report take no time."""
    names = []

    def work(spec, _):
        names.append(spec["stage"])
        for name, content in {**required_of(spec), "result.json": json.dumps(RESULT).encode()}.items():
            file = Path(spec["output"]) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    replace_stages(monkeypatch, work)
    return names


def test_gates_change_the_fingerprint_of_the_report_alone():
    without = {spec.name: spec.key for spec in planned().specs}
    with_one = {spec.name: spec.key for spec in planned("gates.min_gain=0.1").specs}
    assert {name for name in without if without[name] != with_one[name]} == {"report"}
    assert planned("gates.min_gain=0.2").spec("report").key != with_one["report"]


def test_a_failed_gate_ends_the_run_before_export_with_a_report(tmp_path, built, capsys):
    store = evaluated(tmp_path)
    command = ["run", f"store={tmp_path}", "gates.min_accuracy=0.6", "gates.min_gain=0.1"]
    assert main(command) == 1
    assert built == ["report"]
    output = capsys.readouterr().err
    reason = "gates.min_accuracy=0.6: the greedy accuracy after GRPO is 0.5, must be at least 0.6"
    assert f"error: {reason}; export is not built" in output and "gates.min_gain" not in output
    (run,) = history.runs(tmp_path).values()
    assert (run.state, run.failed_stage) == ("failed", "export") and reason in (run.message or "")
    report = tmp_path / run.artifacts["report"]
    assert (report / "index.html").is_file() and f"report: {report / 'index.html'}" in output
    assert store.problem(planned(f"store={tmp_path}").spec("evaluate").key) is None
    assert main(command) == 1 and built == ["report"]  # repeated, it decides again and builds nothing


def test_a_gate_that_passes_after_a_change_builds_only_export_and_report(tmp_path, built):
    evaluated(tmp_path)
    assert main(["run", f"store={tmp_path}", "gates.min_accuracy=0.6"]) == 1
    assert main(["run", f"store={tmp_path}", "gates.min_accuracy=0.4"]) == 0
    assert built == ["report", "export", "report"]
    assert main(["plan", f"store={tmp_path}", "gates.min_accuracy=0.4"]) == 0


def test_a_gate_also_refuses_a_model_that_was_exported_without_it(tmp_path, built, printed):
    complete([f"store={tmp_path}"])
    command = [f"store={tmp_path}", "gates.min_accuracy=0.6"]
    rows = {row["stage"]: row for row in printed("plan", *command, code=10)["stages"]}
    assert rows["evaluate"]["state"] == "CACHED"
    for stage in ("export", "report"):
        assert rows[stage]["state"] == "BLOCKED" and "gates.min_accuracy=0.6" in rows[stage]["reason"]
    assert main(["run", *command]) == 1
    assert main(["run", *command, "--only", "export"]) == 1
    assert main(["run", *command, "--until", "evaluate"]) == 0
    assert built == ["report"]


def test_the_python_interface_names_the_gate(tmp_path):
    complete([f"store={tmp_path}"])
    with pytest.raises(grpoflow.Error, match=r"exit code 1: gates\.min_gain=0\.9: the gain"):
        grpoflow.run([f"store={tmp_path}", "gates.min_gain=0.9"], until="export")


def test_rebuilding_evaluate_decides_anew(tmp_path, monkeypatch):
    """The earlier artifact failed the gate, its replacement passes."""
    complete([f"store={tmp_path}"])

    def work(spec, _):
        for name, content in {**required_of(spec), "result.json": b""}.items():
            file = Path(spec["output"]) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        (Path(spec["output"]) / "result.json").write_text(json.dumps({**RESULT, "accuracy_grpo": 0.75}))

    replace_stages(monkeypatch, work)
    command = ["run", f"store={tmp_path}", "gates.min_accuracy=0.7"]
    assert main(command) == 1
    assert main([*command, "--force", "evaluate"]) == 0


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["train.beta=0", "gates.max_kl=1"], "train.beta=0"),
        (["engine=supervised", "experiment=sft_qwen2_5_0_5b", "gates.min_gain=0"], "evaluate, which is left"),
        (["gates.min_accuracy=50"], "at most 1"),
    ],
)
def test_gates_that_could_never_be_decided_are_refused(overrides, reason, tmp_path, shown):
    assert reason in shown("plan", f"store={tmp_path}", *overrides, code=2).err


def test_points_of_a_sweep_have_the_same_gates(tmp_path, shown):
    words = ["sweep", "--plan", f"store={tmp_path}", "gates.min_gain=0.1,0.2", "train.beta=0.01,0.02"]
    assert "gates.min_gain: must have one value" in shown(*words, code=2).err


def test_a_gate_fails_one_point_of_a_sweep_and_not_the_other(tmp_path, built):
    evaluated(tmp_path)
    low = {**RESULT, "accuracy_grpo": 0.25}
    complete(
        [f"store={tmp_path}", "train.beta=0.5"], *BUILT, files={"evaluate": {"result.json": json.dumps(low)}}
    )
    assert main(["sweep", f"store={tmp_path}", "train.beta=0.04,0.5", "gates.min_accuracy=0.4"]) == 1
    (file,) = tmp_path.glob("sweeps/*/sweep.json")
    points = json.loads(file.read_text())["points"]
    assert [point["state"] for point in points] == ["finished", "failed"]
    assert "gates.min_accuracy=0.4" in points[1]["message"]


@pytest.mark.parametrize(
    ("training", "limit", "passed"),
    [
        ({}, 0.2, False),
        ({}, 0.3, True),
        ({"weights_of_step": 2}, 0.2, True),
        ({"weights_of_step": 1}, 0.2, False),
    ],
)
def test_the_kl_is_that_of_the_exported_weights(training, limit, passed):
    rows = [json.loads(line) for line in METRICS.splitlines()]
    gates = GatesConfig(min_accuracy=None, max_kl=limit, min_gain=None)
    (verdict,) = judge(gates, {}, training, rows)
    assert verdict.passed is passed


def test_a_value_that_was_not_measured_fails_its_gate():
    gates = GatesConfig(min_accuracy=0.1, max_kl=1.0, min_gain=-1.0)
    assert [verdict.passed for verdict in judge(gates, {"gain": float("nan")}, {}, [])] == [False] * 3
