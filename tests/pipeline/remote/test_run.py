"""A run takes from a remote what it needs and nothing else; without the remote it goes on all the same."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import luigi
import pytest

from pipeline import tasks
from pipeline.cli import main
from pipeline.errors import NotThere, RemoteError
from pipeline.run import build as building
from pipeline.run import pushing
from pipeline.run import run as running
from pipeline.run.run import prepare_plan
from pipeline.store.remote import copies
from pipeline.store.remote.place import Place
from stages.report import artifacts
from stages.report.artifacts import READS
from tests.pipeline.artifacts import manifest_of, required
from tests.pipeline.remote import servers

WEIGHTS = b"w" * 200_000
RESULT = {"prompts": 1024, "accuracy_sft": 0.5, "accuracy_grpo": 0.9, "gain": 0.4}


@pytest.fixture
def built(monkeypatch):
    """The stages that were built, each in no time; what they read of their inputs has to be there."""
    names: list[str] = []

    def stage(spec, store, seat, launcher, watcher, *rest):
        viewed = rest[1]
        for key in spec.inputs.values():
            directory = viewed.get(key.stage, store.path(key))
            assert (directory / "manifest.json").is_file(), f"{spec.name} reads {key}"
            assert key.stage in viewed or store.problem(key) is None
            assert not (key.stage in viewed and (directory / "weights.bin").exists())
        names.append(spec.name)
        files = {
            "weights.bin": WEIGHTS,
            "metrics.jsonl": b'{"step": 1}\n',
            "result.json": json.dumps(RESULT).encode(),
        }
        for name, content in {**required(spec.name, spec.config, files), **files}.items():
            (seat.staging / name).parent.mkdir(parents=True, exist_ok=True)
            (seat.staging / name).write_bytes(content)
        inputs = {name: key.fingerprint for name, key in spec.inputs.items()}
        return manifest_of(spec.key, config=dict(spec.config), inputs=inputs, code_version=spec.version)

    monkeypatch.setattr(building, "_run", stage)
    monkeypatch.setattr(running, "_check_environment", lambda: None)
    monkeypatch.setattr("pipeline.plan.at_hand.check_rows", lambda *ignored: [])
    return names


@pytest.fixture
def run(built, tmp_path, capsys, monkeypatch):
    """`grpoflow run` in the store of that name: the stages it built, each stage's state, and what it told."""

    def runs(store, *more):
        monkeypatch.setattr(tasks, "_runs", {})
        luigi.task_register.Register.clear_instance_cache()
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
        told = capsys.readouterr()
        states = dict(re.findall(r"^│ (\w+) +│ (\w+) +│", told.out, re.MULTILINE))
        return list(built), states, told.out + told.err

    return runs


def push(tmp_path, *words):
    assert main(["push", *words, f"store={tmp_path / 'mine'}", f"remote=file://{tmp_path}/remote"]) == 0


def has(tmp_path, store, stage):
    plan, there = prepare_plan([f"store={tmp_path / store}"])
    return there.problem(plan.spec(stage).key) is None


PREPARED = ["fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split"]
ALL = [*PREPARED, "sft", "grpo", "evaluate", "export", "report"]
Runs = Callable[..., tuple[list[str], dict[str, str], str]]


def test_who_only_looks_at_results_pulls_no_weights(run, tmp_path):
    assert sorted(run("mine")[0]) == sorted(ALL)
    push(tmp_path)
    names, states, told = run("theirs")
    assert names == []
    assert {name for name, state in states.items() if state == "pulled"} == {"evaluate", "report"}
    assert {name for name, state in states.items() if state == "remote"} == set(ALL) - {"evaluate", "report"}
    assert told.count("result accuracy_sft=0.5000 accuracy_grpo=0.9000") == 1
    assert [name for name in ALL if has(tmp_path, "theirs", name)] == ["evaluate", "report"]
    assert (
        run("theirs")[0] == []
        and main(["plan", f"store={tmp_path / 'theirs'}", f"remote=file://{tmp_path}/remote"]) == 0
    )


def test_a_report_is_made_of_files_that_are_pulled_alone(run, tmp_path):
    run("mine")
    push(tmp_path, *(name for name in ALL if name != "report"))
    names, states, _ = run("theirs")
    assert (
        sorted(names) == sorted(["report"]) and states["grpo"] == "remote" and states["evaluate"] == "pulled"
    )
    assert not list((tmp_path / "theirs" / "grpo").glob("*/weights.bin"))
    assert not list((tmp_path / "theirs" / ".work").glob("*"))


def test_who_trains_pulls_what_training_reads(run, tmp_path):
    run("mine")
    push(tmp_path, *PREPARED)
    names, states, _ = run("theirs")
    assert sorted(names) == sorted(["sft", "grpo", "evaluate", "export", "report"])
    pulled = {name for name, state in states.items() if state == "pulled"}
    assert pulled == {"fetch", "tokenize", "strategy", "split"}
    assert {states[name] for name in ("fetch_dataset", "convert")} == {"remote"}


def test_plan_says_what_comes_from_where(run, tmp_path, capsys):
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


def test_a_damaged_copy_is_told_and_built_instead(run, tmp_path):
    run("mine")
    push(tmp_path, *PREPARED)
    plan, _ = prepare_plan([f"store={tmp_path / 'mine'}"])
    split = tmp_path / "remote" / "artifacts" / "split" / plan.spec("split").key.fingerprint
    part = next(split.rglob("00000000"))
    part.write_bytes(b"!" + part.read_bytes()[1:])
    names, states, told = run("theirs")
    assert sorted(names) == sorted(["split", "sft", "grpo", "evaluate", "export", "report"])
    assert states["convert"] == "remote" or states["convert"] == "pulled"
    assert "is not what its manifest says; it is refused; it is built here" in told
    assert has(tmp_path, "theirs", "split") and has(tmp_path, "theirs", "convert")  # which split reads


def test_a_remote_that_breaks_off_is_told_once_and_done_without(run, tmp_path, monkeypatch):
    run("mine")
    push(tmp_path, *PREPARED, "grpo")

    def down(place, *ignored):
        raise RemoteError(f"{place.url}: Connection refused")

    monkeypatch.setattr(Place, "get", down)
    names, _, told = run("theirs")
    assert sorted(names) == sorted(ALL)
    assert told.count("Connection refused; this run goes on without it") == 1


def test_a_remote_that_is_not_there_is_told_once(run, tmp_path, monkeypatch):
    (tmp_path / "remote").write_text("no directory")
    names, _, told = run("theirs")
    assert sorted(names) == sorted(ALL)
    assert told.count("this run goes on without it") == 1


def test_a_server_that_takes_the_call_and_never_answers_is_told_once(run, monkeypatch):
    """Asked twice at first, and as often when all is built; each time as long as is said."""
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        endpoint = f"remote.endpoint=http://127.0.0.1:{silent.getsockname()[1]}"
        names, _, told = run("mine", "remote=s3://team/x", endpoint, "remote.timeout_s=0.3")
    assert sorted(names) == sorted(ALL)
    assert told.count("imeout") == 1 and told.count("this run goes on without it") == 1, told
    assert re.search(r"push: not at s3://team/x: fetch/.*`grpoflow push [\w-]+` brings it later", told)


def test_what_is_forced_is_not_pulled(run, tmp_path):
    run("mine")
    push(tmp_path)
    names, _, _ = run("theirs", "--only", "strategy", "--force", "strategy", "remote.push=off")
    assert sorted(names) == sorted(["strategy"])


def test_the_report_names_all_that_it_reads():
    """What is brought for a report alone must be enough for it."""
    sources = (Path(artifacts.__file__).parent).glob("*.py")
    read = re.findall(
        r'\.(?:rows|_json)\([^)]*"(\w+\.jsonl?)"', "".join(file.read_text() for file in sources)
    )
    assert len(read) >= 3 and set(read) <= set(READS)


def test_what_a_run_commits_is_pushed_beside_it(run, tmp_path, monkeypatch):
    """Whole before the run has ended, with its record, by a process of its own."""
    monkeypatch.setattr(copies, "PART_BYTES", 8 << 20)  # as that process has it
    _, _, told = run("mine", "remote.push=stages", "remote.stages=[strategy]", "--until", "strategy")
    assert "strategy: pushed, " in told and "convert: pushed" not in told
    names, states, _ = run("theirs", "remote.push=off", "--only", "strategy")
    assert names == [] and states == {"strategy": "pulled"}
    (record,) = (tmp_path / "remote" / "runs").glob("*.jsonl")
    assert [json.loads(line)["event"] for line in record.read_text().splitlines()] == ["started", "finished"]


def test_a_remote_that_takes_nothing_is_told_once(run, tmp_path):
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "artifacts").mkdir()
    (tmp_path / "remote" / "artifacts" / "strategy").write_text("in the way")
    _, _, told = run("mine", "--until", "strategy", "remote.push=stages", "remote.stages=[strategy]")
    assert told.count("warning: remote: ") == 1 and told.count("run goes on") == 1, told
    assert re.search(
        r"push: not at file://.*: strategy/[0-9a-f]{16}; `grpoflow push [\w-]+` brings it later", told
    )


def test_a_manifest_that_is_refused_makes_no_other_unusable(run, tmp_path, capsys):
    run("mine")
    push(tmp_path, *PREPARED)
    (manifest,) = (tmp_path / "remote" / "artifacts" / "split").rglob("*.json")
    manifest.write_text(manifest.read_text().replace('"stage": "split"', '"stage": "fetch"'))
    where = [f"store={tmp_path / 'theirs'}", f"remote=file://{tmp_path}/remote"]
    capsys.readouterr()
    assert main(["plan", "--json", *where]) == 10
    told = capsys.readouterr()
    states = {row["stage"]: row["state"] for row in json.loads(told.out)["stages"]}
    assert (states["split"], states["tokenize"]) == ("RUN", "REMOTE") and "is refused" in told.err
    names, states, told = run("theirs", "remote.push=stages", "remote.stages=[split]")
    assert sorted(names) == sorted(["split", "sft", "grpo", "evaluate", "export", "report"])
    assert states["tokenize"] == "pulled" and re.search("is refused.*; it is built here", told)
    assert len(list(manifest.parent.glob("*.json"))) == 2, "another copy stands beside it"


def test_what_gc_removes_while_it_is_pulled_is_built(run, tmp_path, monkeypatch):
    run("mine")
    push(tmp_path, *PREPARED)
    real = Place.get

    def gone(place, path, *span):
        if "/split/" in path:
            raise NotThere(f"{place.url}/{path}: is not there")
        return real(place, path, *span)

    monkeypatch.setattr(Place, "get", gone)
    names, states, told = run("theirs")
    assert sorted(names) == sorted(["split", "sft", "grpo", "evaluate", "export", "report"])
    assert states["tokenize"] == "pulled" and "goes on without" not in told


def wait_for_pushes():
    """With several workers, a run's process waits for them when it ends, which this one does not."""
    for one in pushing._pushing.values():
        one.finish()


@pytest.fixture
def only_from_there(monkeypatch):
    """From now on, a stage that is built fails."""

    def fails(spec, *ignored):
        raise AssertionError(f"{spec.name} is built")

    return lambda: monkeypatch.setattr(building, "_run", fails)


def test_stages_that_run_at_once_push_and_pull_at_once(run, tmp_path, monkeypatch, only_from_there):
    monkeypatch.setattr(copies, "PART_BYTES", 8 << 20)  # as the process that pushes has it
    run("mine", "--workers", "3", "remote.push=on")
    wait_for_pushes()
    only_from_there()
    wanted = ["tokenize", "split", "grpo"]
    run("theirs", "--workers", "3", "--only", ",".join(wanted), "remote.push=off")
    assert [name for name in ALL if has(tmp_path, "theirs", name)] == wanted


def test_points_of_a_sweep_come_from_the_remote(built, tmp_path, monkeypatch, only_from_there, capfd):
    monkeypatch.setattr(copies, "PART_BYTES", 8 << 20)
    asked: list[str] = []
    real = Place.list
    monkeypatch.setattr(Place, "list", lambda place, path: asked.append(path) or real(place, path))
    points = ["--until", "split", "seed=1,2", f"remote=file://{tmp_path / 'a remote, geteilt für alle'}"]

    def sweep(store, *more):
        luigi.task_register.Register.clear_instance_cache()
        monkeypatch.setattr(tasks, "_runs", {})
        return main(["sweep", f"store={tmp_path / store}", *points, *more])

    assert sweep("mine") == 0
    wait_for_pushes()
    told = capfd.readouterr().err
    assert [told.count(f"[{point}] split: pushed") for point in (0, 1)] == [1, 1]
    only_from_there()
    asked.clear()
    assert sweep("theirs", "remote.push=off") == 0, capfd.readouterr().err
    manifests = sorted(file.parent.name for file in (tmp_path / "theirs").glob("*/*/manifest.json"))
    assert manifests == sorted(file.parent.name for file in (tmp_path / "mine").glob("*/*/manifest.json"))
    of_artifacts = [path for path in asked if path.count("/") == 2]
    assert len(of_artifacts) == len(set(of_artifacts)) == len(manifests)


def test_points_of_a_sweep_wait_once_for_a_remote_that_is_silent(built, tmp_path, monkeypatch, capfd):
    asked: list[str] = []

    def silent(place, path):
        asked.append(path)
        raise RemoteError(f"{place.url}: Read timeout")

    monkeypatch.setattr(Place, "list", silent)
    remote = [f"remote=file://{tmp_path}/remote", "remote.push=off"]
    assert main(["sweep", f"store={tmp_path / 'mine'}", "--until", "strategy", "seed=1,2,3", *remote]) == 0
    assert capfd.readouterr().err.count("this run goes on without it") == 1
    assert len(asked) <= Place("file:///x").workers
