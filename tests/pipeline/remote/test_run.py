"""A run takes from a remote what it needs and nothing else; without the remote it goes on all the same."""

import json
import re
import socket
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.errors import RemoteError
from pipeline.run.run import prepare_plan
from pipeline.store.remote.remote import Remote
from stages.catalog import STAGES
from stages.report import artifacts
from tests.pipeline.artifacts import RESULT, replace_stages, required_of
from tests.pipeline.remote.conftest import edit_manifest

WEIGHTS = b"w" * 200_000
FILES = {
    "weights.bin": WEIGHTS, "metrics.jsonl": b'{"step": 1}\n', "result.json": json.dumps(RESULT).encode(),
}  # fmt: skip
ALL = [*STAGES]
PREPARED, TRAINED = ALL[:6], ALL[6:]


@pytest.fixture
def built(monkeypatch):
    """The stages that were built, each in no time; what they read of their inputs has to be there."""
    names: list[str] = []

    def work(spec, logs):
        for directory in map(Path, spec["inputs"].values()):
            assert (directory / "manifest.json").is_file(), directory
            assert (directory / "weights.bin").exists() is ("views" not in directory.parts)
        names.append(spec["stage"])
        for name, content in {**required_of(spec, FILES), **FILES}.items():
            file = Path(spec["output"]) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    replace_stages(monkeypatch, work)
    return names


@pytest.fixture
def remote(tmp_path):
    return f"remote=file://{tmp_path}/remote"


@pytest.fixture
def run(built, remote, tmp_path, shown):
    """`grpoflow run` in the store of that name: the stages it built, each stage's state, and its output."""

    def runs(store, *more):
        built.clear()
        output = shown("run", f"store={tmp_path / store}", remote, *(more or ["remote.push=off"]))
        states = dict(re.findall(r"^│ (\w+) +│ (\w+) +│", output.out, re.MULTILINE))
        return sorted(built), states, output.out + output.err

    return runs


@pytest.fixture
def pushed(run, remote, tmp_path, printed):
    """Run in the store `mine`, and push stages, or everything."""

    def push(*stages):
        assert run("mine")[0] == sorted(ALL)
        printed("push", *stages, f"store={tmp_path / 'mine'}", remote)

    return push


@pytest.fixture
def planned(printed, remote, tmp_path):
    """The stages in a plan for the store of that name."""

    def plan(store, code=10):
        rows = printed("plan", f"store={tmp_path / store}", remote, code=code)["stages"]
        return {row["stage"]: row for row in rows}

    return plan


def has(tmp_path, store):
    """Return the stages whose artifacts are in a store."""
    plan, there = prepare_plan([f"store={tmp_path / store}"])
    return [spec.name for spec in plan.specs if there.problem(spec.key) is None]


@pytest.mark.parametrize(
    ("there", "pulled", "built_here"),
    [
        (ALL, {"evaluate", "report"}, []),
        ([*PREPARED, *TRAINED[:-1]], {"evaluate"}, ["report"]),  # from single files of the others
        (PREPARED, {"fetch", "tokenize", "strategy", "split"}, TRAINED),
    ],
)
def test_a_run_pulls_what_it_reads_and_nothing_else(
    run, pushed, planned, tmp_path, there, pulled, built_here
):
    pushed(*there)
    rows = planned("theirs")
    assert {name for name, row in rows.items() if row["state"] == "REMOTE"} == set(there)
    assert {name for name in there if rows[name]["bytes"] > 0} == pulled
    names, states, output = run("theirs")
    assert names == sorted(built_here)
    expected = dict.fromkeys(there, "remote") | dict.fromkeys(pulled, "pulled")
    assert {name: states[name] for name in there} == expected
    assert output.count("result accuracy_sft=0.0000 accuracy_grpo=0.5000") == 1
    assert set(has(tmp_path, "theirs")) == {*pulled, *built_here}
    assert not list((tmp_path / "theirs" / ".work").glob("*"))
    assert run("theirs")[0] == []
    planned("theirs", code=0)
    forced = ["--only", "fetch_dataset", "--force", "fetch_dataset", "remote.push=off"]
    assert run("theirs", *forced)[0] == ["fetch_dataset"]


def test_report_declares_all_files_it_reads():
    """If only the report is missing, only its declared files are downloaded."""
    text = "".join(file.read_text() for file in Path(artifacts.__file__).parent.glob("*.py"))
    read = re.findall(r'\.(?:rows|_json)\([^)]*"(\w+\.jsonl?)"', text)
    assert len(read) >= 3 and set(read) <= set(artifacts.READS)


def test_damaged_copy_is_reported_and_built_instead(run, pushed, tmp_path):
    pushed(*PREPARED)
    (split,) = (tmp_path / "remote" / "split").iterdir()
    (split / "weights.bin").write_bytes(b"!" + WEIGHTS[1:])
    names, _, output = run("theirs")
    assert names == sorted(["split", *TRAINED])
    assert "does not have its manifest's digest; it is built here" in output
    assert {"split", "convert"} <= set(has(tmp_path, "theirs"))  # split reads convert


@pytest.mark.parametrize("claim", [{"code_version": 99}, {"inputs": {"fetch": "0" * 64}}])
def test_copies_built_from_different_inputs_or_code_are_not_used(claim, pushed, planned, tmp_path):
    pushed("convert")
    edit_manifest(tmp_path / "remote" / "convert", lambda manifest: manifest.update(claim))
    assert planned("theirs")["convert"]["state"] == "RUN"


@pytest.mark.parametrize("fault", ["Connection refused", "imeout"])
def test_a_remote_that_fails_is_reported_once_and_not_used(fault, run, pushed, monkeypatch):
    def refuse(remote, *ignored):
        raise RemoteError(f"{remote.url}: Connection refused")

    pushed(*PREPARED, "grpo")
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        endpoint = f"remote.endpoint=http://127.0.0.1:{silent.getsockname()[1]}"
        settings = ["remote=s3://team/x", endpoint, "remote.timeout_s=0.3"]
        if fault == "Connection refused":
            settings = ["remote.push=on"]
            monkeypatch.setattr(Remote, "download", refuse)
        names, _, output = run("theirs", *settings)
    assert names == sorted(ALL)
    assert output.count(fault) == output.count("this run goes on without it") == 1, output
    assert re.search("push: not at .*: fetch/", output)


def test_run_pushes_its_artifacts_and_record(run, tmp_path):
    _, _, output = run("mine", "remote.push=stages", "remote.stages=[strategy]", "--until", "strategy")
    assert re.search(r"pushed to file://.*: strategy/[0-9a-f]{16}$", output, re.MULTILINE)
    names, states, _ = run("theirs", "remote.push=off", "--only", "strategy")
    assert names == [] and states == {"strategy": "pulled"}
    (record,) = (tmp_path / "remote" / "runs").glob("*.jsonl")
    assert [json.loads(line)["event"] for line in record.read_text().splitlines()] == ["started", "finished"]


def test_concurrent_stages_push_and_pull(run, tmp_path):
    run("mine", "--workers", "3", "remote.push=on")
    expected = ["tokenize", "split", "grpo"]
    run("theirs", "--workers", "3", "--only", ",".join(expected), "remote.push=off")
    assert has(tmp_path, "theirs") == expected


def test_points_of_a_sweep_are_pulled(built, tmp_path, monkeypatch, capfd):
    requested: list[str] = []
    real = Remote.read
    monkeypatch.setattr(Remote, "read", lambda remote, path: requested.append(path) or real(remote, path))
    points = ["--until", "split", "seed=1,2", f"remote=file://{tmp_path / 'a remote, geteilt für alle'}"]

    def sweep(store, *more):
        built.clear()
        assert main(["sweep", f"store={tmp_path / store}", *points, *more]) == 0
        return sorted(file.parent.name for file in (tmp_path / store).glob("*/*/manifest.json"))

    mine, output = sweep("mine"), capfd.readouterr().err
    assert [len(re.findall(rf"\[{point}\] pushed to .*split/", output)) for point in (0, 1)] == [1, 1]
    requested.clear()
    assert sweep("theirs", "remote.push=off") == mine and built == []
    before_pulling = requested[: len(mine)]
    assert len(set(before_pulling)) == len(mine), "once for each artifact, though points share them"
