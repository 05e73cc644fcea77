"""Runs in this process: requested stages, rebuilding, Luigi's tasks, and a parent that is killed."""

import itertools
import json
import re
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import luigi
import pytest

import pipeline
from launch.errors import ProcessFailed
from pipeline.cli import main
from pipeline.cli.completion import overrides
from pipeline.errors import StoreError
from pipeline.plan.graph import downstream
from pipeline.plan.target import ALL_STAGES
from pipeline.run.run import Run, begin, first_digest
from pipeline.store import history
from tests.pipeline.artifacts import complete, replace_stages, required_of
from tests.pipeline.plans import MINDSPEED_RL, planned
from tests.processes import living, unanswered_download, wait_until


@pytest.fixture(autouse=True)
def _no_digests():
    """Clear the digests that earlier runs of this process have read."""
    first_digest.cache_clear()


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ("--until=convert", "fetch fetch_dataset convert"),
        ("--until=convert --force=fetch", "fetch fetch_dataset convert"),
        ("--only=tokenize", "fetch fetch_dataset tokenize"),
        ("--only=split,fetch_dataset", "fetch fetch_dataset convert strategy split"),
    ],
)
def test_until_follows_the_order_and_only_the_inputs(options, stages, tmp_path, printed):
    shown = printed("plan", *options.split(), f"store={tmp_path}", code=10)
    assert [row["stage"] for row in shown["stages"]] == stages.split()


@pytest.mark.parametrize("command", ["plan", "run", "sweep --plan"])
@pytest.mark.parametrize(
    "options",
    [
        *(f"{option}={name}" for option in ("--until", "--only", "--force") for name in ("", "nosuch")),
        "--only=,", "--force=tokenize,,split", "--until=sft sft.enabled=false", "--until=split --only=grpo",
        "--force=grpo --until=split", "--force=fetch_dataset --only=split",
    ],
)  # fmt: skip
def test_unknown_skipped_and_contradictory_stages_are_refused(command, options, tmp_path, capsys):
    assert main([*command.split(), *options.split(), f"store={tmp_path / 'store'}"]) == 2
    assert f": {options.partition('=')[0]}" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_force_rebuilds_everything_downstream(tmp_path, printed):
    complete([f"store={tmp_path}"])
    rows = printed("plan", "--force", "grpo", f"store={tmp_path}", code=10)["stages"]
    rebuilt = {row["stage"] for row in rows if (row["state"], row["reason"]) == ("RUN", "rebuilt (--force)")}
    assert rebuilt == {"grpo", "evaluate", "export", "report"}
    assert {row["state"] for row in rows if row["stage"] not in rebuilt} == {"CACHED"}
    assert main(["plan", f"store={tmp_path}"]) == 0  # planning rebuilds nothing


def test_a_rebuilt_artifact_moves_the_earlier_artifact_to_quarantine(tmp_path, monkeypatch, shown):
    def fail(*_):
        raise ProcessFailed(1, tmp_path / "log", [])

    store = complete([f"store={tmp_path}"])[1].root
    (artifact,) = (store / "strategy").iterdir()
    manifest = (artifact / "manifest.json").read_bytes()
    rebuild = ["run", "--only", "strategy", "--force", "strategy", f"store={store}"]
    with monkeypatch.context() as failing:
        replace_stages(failing, fail)
        assert main(rebuild) == 1
    assert (artifact / "manifest.json").read_bytes() == manifest
    assert main(["plan", f"store={store}"]) == 0  # nothing is lost
    output, (_, run) = shown(*rebuild), history.runs(store).values()
    assert output.out.endswith(f"\ndone run={run.id} strategy={artifact}\n")
    note = "note: split, sft, grpo, evaluate, export, report: built from the replaced artifact of strategy"
    assert f"{note}; rebuild with --force split\n" in output.err
    assert (artifact / "manifest.json").read_bytes() != manifest
    (moved,) = (store / ".quarantine").iterdir()
    assert (moved / "manifest.json").read_bytes() == manifest
    assert main(["plan", "--only", "strategy", f"store={store}"]) == 0


def task(family, *values):
    made: luigi.Task = getattr(pipeline, family)(overrides=json.dumps(values))
    return made


def stage_tasks(*values):
    return {made.stage: made for made in task("RunGRPO", *values).deps()}


def test_runs_with_the_same_fingerprint_share_a_task(tmp_path):
    store = f"store={tmp_path}"
    first, same, second = (stage_tasks(store, more) for more in ("seed=0", "evaluate.k=2", "seed=1"))
    assert first["split"].task_id == same["split"].task_id != second["split"].task_id
    assert first["evaluate"].task_id != same["evaluate"].task_id
    assert len(first["split"].fingerprint) == 16


def test_training_stages_occupy_cards(tmp_path):
    used = {name: made.resources for name, made in stage_tasks(f"store={tmp_path}").items()}
    expected = {"sft": {"cards": 1}, "grpo": {"cards": 2}, "evaluate": {"cards": 1}}
    assert {name: cards for name, cards in used.items() if cards} == expected


def test_constructing_a_task_has_no_effects(tmp_path, capsys):
    store = tmp_path / "store"
    made = task("RunGRPO", f"store={store}")
    task("Split", "no such key=1")
    assert not store.exists() and capsys.readouterr() == ("", "")
    assert not made.complete() and len(history.runs(store)) == 1
    assert not made.complete() and made.deps() and len(history.runs(store)) == 1


def test_luigi_build_fails_for_an_invalid_run_and_does_not_exit(tmp_path, capsys):
    made = task("RunGRPO", f"store={tmp_path}", "train.stepz=1")
    assert not luigi.build([made], local_scheduler=True, log_level="CRITICAL")
    assert capsys.readouterr().err.count("error: ") == 1 and not history.runs(tmp_path)


@pytest.mark.parametrize(
    "overrides",
    [(), ("engine.sft=mindformers", "layout=dp1_mp1_pp1"), MINDSPEED_RL, ("engine=verl", "model=qwen2_5_7b")],
)
def test_stages_that_occupy_cards_follow_each_other(overrides):
    """Luigi's own scheduler has no limit of cards."""
    graph = planned(*overrides).graph
    computing = [stage.name for stage in graph if stage.computes]
    assert len(computing) > 1
    for earlier, later in itertools.pairwise(computing):
        assert later in downstream([earlier], graph)


def test_a_task_of_a_stage_builds_it_with_its_inputs_only(tmp_path, capsys):
    made = task("Strategy", f"store={tmp_path}", "layout=dp2_mp1_pp1")
    assert luigi.build([made], local_scheduler=True, log_level="ERROR")
    (record,) = history.runs(tmp_path).values()
    assert record.state == "finished" and list(record.artifacts) == ["strategy"]
    assert capsys.readouterr().out.endswith(f"strategy={tmp_path / record.artifacts['strategy']}\n")
    assert not (tmp_path / "split").exists()


def test_a_failure_after_the_last_stage_is_reported(tmp_path, shown, monkeypatch):
    """Luigi's message is suppressed, and the stages have nothing to report."""
    monkeypatch.setattr(Run, "report", lambda run: (_ for _ in ()).throw(StoreError("runs.jsonl: full")))
    assert "error: runs.jsonl: full" in shown("run", "--only", "strategy", f"store={tmp_path}", code=1).err


@pytest.mark.parametrize("command", ["run", "run --workers 2", "sweep --cards 2"])
def test_a_stage_ends_with_its_parent(tmp_path, command):
    """kill -9 of `run` or `sweep` alone; the stage waits for a server that never answers."""
    store = tmp_path / "store"
    with unanswered_download() as download:
        line = [sys.executable, "-m", "pipeline.cli", *command.split(), "--only", "fetch_dataset"]
        line += [f"store={store}", *download, "layout=dp1_mp1_pp1"]
        process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: living(store), 120, process, lambda: process.communicate(timeout=30)[1])
        time.sleep(1)  # until the stage has begun to wait
        assert living(store)
        process.kill()
        process.wait()
        wait_until(lambda: not living(store), 60, describe=lambda: f"still running: {living(store)}")


@pytest.mark.parametrize(
    ("variable", "value", "override"),
    [
        ("GRPOFLOW_REMOTE", "s3://me:hush@bucket/x", "remote=none"),
        ("GRPOFLOW_REMOTE", "no url", "remote=file:///tmp/nowhere"),
        ("GRPOFLOW_STORE", "s3://bucket/x", "remote=none"),
        ("GRPOFLOW_STORE", "~/x", "remote=none"),
    ],
)
def test_invalid_variables_that_are_overridden_fail_no_stage(
    variable, value, override, tmp_path, shown, cache, monkeypatch
):
    monkeypatch.setenv(variable, value)
    values = [f"store={tmp_path / 'store'}", override, "remote.push=off"]
    complete(values, "fetch", "fetch_dataset", "convert", "strategy", "split", "tokenize", "sft", "grpo")
    complete(values, "evaluate", "export")
    seen = []
    replace_stages(monkeypatch, lambda spec, logs: seen.append(write_required(spec)))
    shown("run", *values)
    assert [spec["stage"] for spec in seen] == ["report"] and seen[0]["config"]["defaults"]["seed"] == 0
    assert "did you mean" in shown("plan", *values, "train.stepz=1", code=2).err
    assert list(overrides("see", Namespace(config_dir=None))) == ["seed="]


def write_required(spec):
    """Write the required files of a stage into its output, and return the spec."""
    for name, content in required_of(spec).items():
        (Path(spec["output"]) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(spec["output"]) / name).write_bytes(content)
    return spec


HEAVY = (
    "luigi", "hydra", "numpy", "filelock", "yaml", "importlib.metadata", "asyncio", "fsspec", "s3fs",
    "botocore", "paramiko", "pipeline.store.remote.remote", "mindspore", "mindformers", "torch", "ray",
)  # fmt: skip
"""Modules that take 20 ms or more, or that only other commands need."""
PROGRAM = f"""
import sys
from pipeline.cli import main
code = main(sys.argv[1:])
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def store(tmp_path, cache):
    """A finished one, whose configuration was composed before."""
    return complete([f"store={tmp_path / 'store'}"])[1]


def exited(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    return done.returncode, re.sub(r"run=[\w-]+", "run=ID", done.stdout), done.stderr


def test_cached_run_imports_little_and_prints_the_same_as_luigi(store):
    directory = f"store={store.root}"
    exited("-c", PROGRAM, "plan", directory)  # composes the configuration in this environment
    code, out, heavy = exited("-c", PROGRAM, "run", directory)
    assert (code, heavy) == (0, "[]\n")
    (report,) = (store.root / "report").iterdir()
    assert out.endswith(f"run=ID report={report / 'index.html'}\n")
    assert exited("-m", "luigi", "--module", "pipeline", "RunGRPO", "--overrides", directory) == (0, out, "")
    assert exited("-c", PROGRAM, "plan", directory)[::2] == (0, "[]\n")
    for empty in ("", " "):  # an unset variable of a script
        code, out, told = exited("-m", "luigi", "--module", "pipeline", "RunGRPO", "--overrides", empty)
        assert (code, out) == (2, "") and told.startswith("error: --overrides")
    states = [run.state for run in history.runs(store.root).values()]
    assert states == ["finished", "finished"]
    run = begin([directory], None, ALL_STAGES)
    assert not run.missing()
    store.quarantine(run.plan.spec("split").key)  # after planning
    assert run.missing()
