"""A run takes from a remote what it needs and nothing else; without the remote it goes on all the same."""

import hashlib
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.process.child import Outcome
from pipeline.cli import main
from pipeline.errors import RemoteError
from pipeline.run import build as building
from pipeline.run.run import prepare_plan
from pipeline.store.remote.remote import Remote
from stages.report import artifacts
from stages.report.artifacts import READS
from tests.pipeline.artifacts import required
from tests.pipeline.remote import servers

WEIGHTS = b"w" * 200_000
ROWS = {"train": {"records": 9999}, "sft": {"records": 9999}}
RESULT = {"prompts": 1024, "accuracy_sft": 0.5, "accuracy_grpo": 0.9, "gain": 0.4, "files": ROWS}


@pytest.fixture
def built(monkeypatch):
    """The stages that were built, each in no time; what they read of their inputs has to be there."""
    names: list[str] = []

    def stage(spec, store, slot, *ignored):
        inputs = json.loads((slot.logs / "spec.json").read_text())["inputs"]
        for name, key in spec.inputs.items():
            directory = Path(inputs[name])
            assert (directory / "manifest.json").is_file(), f"{spec.name} reads {key}"
            is_view = directory != store.path(key)
            assert is_view or store.problem(key) is None
            assert not (is_view and (directory / "weights.bin").exists())
        names.append(spec.name)
        files = {
            "weights.bin": WEIGHTS,
            "metrics.jsonl": b'{"step": 1}\n',
            "result.json": json.dumps(RESULT).encode(),
        }
        for name, content in {**required(spec.name, spec.config, files), **files}.items():
            (slot.staging / name).parent.mkdir(parents=True, exist_ok=True)
            (slot.staging / name).write_bytes(content)
        return Outcome(0.0, 1.0, 0.0)

    monkeypatch.setattr(building, "_run", stage)
    monkeypatch.setattr("launch.machine.environment.problems", list)
    return names


@pytest.fixture
def run(built, tmp_path, capsys, monkeypatch):
    """`grpoflow run` in the store of that name: the stages it built, each stage's state, and what it told."""

    def runs(store, *more):
        built.clear()
        assert (
            main(
                [
                    "run",
                    f"store={tmp_path / store}",
                    f"remote=file://{tmp_path}/remote",
                    *(more or ["remote.push=off"]),
                ]
            )
            == 0
        )
        output = capsys.readouterr()
        states = dict(re.findall(r"^│ (\w+) +│ (\w+) +│", output.out, re.MULTILINE))
        return list(built), states, output.out + output.err

    return runs


def push(tmp_path, *words):
    assert main(["push", *words, f"store={tmp_path / 'mine'}", f"remote=file://{tmp_path}/remote"]) == 0


def has(tmp_path, store, stage):
    plan, there = prepare_plan([f"store={tmp_path / store}"])
    return there.problem(plan.spec(stage).key) is None


PREPARED = ["fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split"]
ALL = [*PREPARED, "sft", "grpo", "evaluate", "export", "report"]
Runs = Callable[..., tuple[list[str], dict[str, str], str]]


def test_results_are_pulled_without_weights(run, tmp_path):
    assert sorted(run("mine")[0]) == sorted(ALL)
    push(tmp_path)
    names, states, output = run("theirs")
    assert names == []
    assert {name for name, state in states.items() if state == "pulled"} == {"evaluate", "report"}
    assert {name for name, state in states.items() if state == "remote"} == set(ALL) - {"evaluate", "report"}
    assert output.count("result accuracy_sft=0.5000 accuracy_grpo=0.9000") == 1
    assert [name for name in ALL if has(tmp_path, "theirs", name)] == ["evaluate", "report"]
    assert (
        run("theirs")[0] == []
        and main(["plan", f"store={tmp_path / 'theirs'}", f"remote=file://{tmp_path}/remote"]) == 0
    )


def test_report_is_built_from_single_pulled_files(run, tmp_path):
    run("mine")
    push(tmp_path, *(name for name in ALL if name != "report"))
    names, states, _ = run("theirs")
    assert (
        sorted(names) == sorted(["report"]) and states["grpo"] == "remote" and states["evaluate"] == "pulled"
    )
    assert not list((tmp_path / "theirs" / "grpo").glob("*/weights.bin"))
    assert not list((tmp_path / "theirs" / ".work").glob("*"))


def test_training_pulls_only_its_inputs(run, tmp_path):
    run("mine")
    push(tmp_path, *PREPARED)
    names, states, _ = run("theirs")
    assert sorted(names) == sorted(["sft", "grpo", "evaluate", "export", "report"])
    pulled = {name for name, state in states.items() if state == "pulled"}
    assert pulled == {"fetch", "tokenize", "strategy", "split"}
    assert {states[name] for name in ("fetch_dataset", "convert")} == {"remote"}


def test_plan_shows_what_comes_from_the_remote(run, tmp_path, capsys):
    run("mine")
    push(tmp_path, *PREPARED)
    capsys.readouterr()
    where = [f"store={tmp_path / 'theirs'}", f"remote=file://{tmp_path}/remote"]
    assert main(["plan", "--json", *where]) == 10
    rows = {row["stage"]: row for row in json.loads(capsys.readouterr().out)["stages"]}
    assert rows["split"]["state"] == "REMOTE" and rows["split"]["bytes"] > len(WEIGHTS)
    assert "pulls 19" in rows["split"]["reason"] and "remote" in rows["split"]["reason"]
    assert rows["convert"]["state"] == "REMOTE" and rows["convert"]["bytes"] == 0
    assert rows["grpo"]["state"] == "RUN"
    assert main(["plan", "--only", "split", *where]) == 10


def test_damaged_copy_is_reported_and_built_instead(run, tmp_path):
    run("mine")
    push(tmp_path, *PREPARED)
    plan, _ = prepare_plan([f"store={tmp_path / 'mine'}"])
    (split,) = (tmp_path / "remote" / "split").glob(f"{plan.spec('split').key.fingerprint}-*")
    (split / "weights.bin").write_bytes(b"!" + WEIGHTS[1:])
    names, states, output = run("theirs")
    assert sorted(names) == sorted(["split", "sft", "grpo", "evaluate", "export", "report"])
    assert states["convert"] == "remote" or states["convert"] == "pulled"
    assert "does not have its manifest's digest; it is built here" in output
    assert has(tmp_path, "theirs", "split") and has(tmp_path, "theirs", "convert")  # which split reads


def test_failing_remote_is_reported_once_and_not_used(run, tmp_path, monkeypatch):
    run("mine")
    push(tmp_path, *PREPARED, "grpo")

    def down(remote, *ignored):
        raise RemoteError(f"{remote.url}: Connection refused")

    monkeypatch.setattr(Remote, "download", down)
    names, _, output = run("theirs")
    assert sorted(names) == sorted(ALL)
    assert output.count("Connection refused; this run goes on without it") == 1


def test_silent_server_is_reported_once(run, monkeypatch):
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        endpoint = f"remote.endpoint=http://127.0.0.1:{silent.getsockname()[1]}"
        names, _, output = run("mine", "remote=s3://team/x", endpoint, "remote.timeout_s=0.3")
    assert sorted(names) == sorted(ALL)
    assert output.count("imeout") == 1 and output.count("this run goes on without it") == 1, output
    assert "push: not at s3://team/x: fetch/" in output


def test_forced_stages_are_not_pulled(run, tmp_path):
    run("mine")
    push(tmp_path)
    names, _, _ = run("theirs", "--only", "strategy", "--force", "strategy", "remote.push=off")
    assert sorted(names) == sorted(["strategy"])


def test_report_declares_all_files_it_reads():
    """If only the report is missing, only its declared files are downloaded."""
    sources = (Path(artifacts.__file__).parent).glob("*.py")
    read = re.findall(
        r'\.(?:rows|_json)\([^)]*"(\w+\.jsonl?)"', "".join(file.read_text() for file in sources)
    )
    assert len(read) >= 3 and set(read) <= set(READS)


def test_run_pushes_its_artifacts_and_record(run, tmp_path):
    _, _, output = run("mine", "remote.push=stages", "remote.stages=[strategy]", "--until", "strategy")
    assert re.search(r"pushed to file://.*: strategy/[0-9a-f]{16}$", output, re.MULTILINE)
    names, states, _ = run("theirs", "remote.push=off", "--only", "strategy")
    assert names == [] and states == {"strategy": "pulled"}
    (record,) = (tmp_path / "remote" / "runs").glob("*.jsonl")
    assert [json.loads(line)["event"] for line in record.read_text().splitlines()] == ["started", "finished"]


@pytest.mark.parametrize("claim", [{"code_version": 99}, {"inputs": {"fetch": "0" * 64}}])
def test_copies_built_from_different_inputs_or_code_are_not_used(claim, run, tmp_path, capsys):
    run("mine")
    push(tmp_path, "convert")
    (manifest,) = (tmp_path / "remote" / "convert").glob("*/manifest.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **claim}))
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()[:8]
    manifest.parent.rename(manifest.parent.with_name(f"{manifest.parent.name[:-8]}{digest}"))
    capsys.readouterr()
    assert main(["plan", "--json", f"store={tmp_path / 'theirs'}", f"remote=file://{tmp_path}/remote"]) == 10
    rows = {row["stage"]: row["state"] for row in json.loads(capsys.readouterr().out)["stages"]}
    assert rows["convert"] == "RUN"


@pytest.fixture
def only_from_there(monkeypatch):
    """Make every further build of a stage fail."""

    def fails(spec, *ignored):
        raise AssertionError(f"{spec.name} is built")

    return lambda: monkeypatch.setattr(building, "_run", fails)


def test_concurrent_stages_push_and_pull(run, tmp_path, monkeypatch, only_from_there):
    run("mine", "--workers", "3", "remote.push=on")
    only_from_there()
    expected = ["tokenize", "split", "grpo"]
    run("theirs", "--workers", "3", "--only", ",".join(expected), "remote.push=off")
    assert [name for name in ALL if has(tmp_path, "theirs", name)] == expected


def test_points_of_a_sweep_are_pulled(built, tmp_path, monkeypatch, only_from_there, capfd):
    requested: list[str] = []
    real = Remote.read
    monkeypatch.setattr(Remote, "read", lambda remote, path: requested.append(path) or real(remote, path))
    points = ["--until", "split", "seed=1,2", f"remote=file://{tmp_path / 'a remote, geteilt für alle'}"]

    def sweep(store, *more):
        return main(["sweep", f"store={tmp_path / store}", *points, *more])

    assert sweep("mine") == 0
    output = capfd.readouterr().err
    assert [len(re.findall(rf"\[{point}\] pushed to .*split/", output)) for point in (0, 1)] == [1, 1]
    only_from_there()
    requested.clear()
    assert sweep("theirs", "remote.push=off") == 0, capfd.readouterr().err
    manifests = sorted(file.parent.name for file in (tmp_path / "theirs").glob("*/*/manifest.json"))
    assert manifests == sorted(file.parent.name for file in (tmp_path / "mine").glob("*/*/manifest.json"))
    before_pulling = requested[: len(manifests)]
    assert len(set(before_pulling)) == len(manifests), "once for each artifact, though points share them"
