import json
import os
import resource

import pytest

from launch.errors import LaunchError
from pipeline import tasks
from pipeline.cli import main
from pipeline.run.run import Run, prepare_plan
from pipeline.store import history
from pipeline.sweep.build import Sweep
from pipeline.sweep.points import Point, expand


@pytest.fixture
def location(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bad_data(tmp_path):
    """A directory with a dataset that fetch_dataset refuses."""
    (tmp_path / "bad").mkdir()
    for name in ("train", "test"):
        (tmp_path / "bad" / f"{name}.jsonl").write_text("not json\n")
    return str(tmp_path / "bad")


def test_plan_counts_each_shared_artifact_once(location, capsys):
    assert main(["sweep", "--plan", "-m", "store=s", "train.beta=0.0,0.1", "layout=dp2_mp1_pp1,tiny"]) == 0
    lines = [line.split("\u2502") for line in capsys.readouterr().out.splitlines() if "\u2502" in line]
    counts = {cells[1].strip(): cells[2].strip() for cells in lines}
    assert (counts["tokenize"], counts["split"], counts["grpo"]) == ("1", "2", "4")
    assert not (location / "s" / "grpo").exists()


def test_json_plan_has_a_line_per_point(location, capsys):
    assert main(["sweep", "--plan", "--json", "store=s", "layout=dp1_mp3_pp1,tiny"]) == 0
    refused, planned = map(json.loads, capsys.readouterr().out.splitlines())
    assert (refused["state"], refused["to_run"], refused["artifacts"]) == ("invalid", [], {})
    assert "layout.train.model_parallel=3" in refused["message"]
    assert planned["overrides"] == ["store=s", "layout=tiny"]
    assert planned["to_run"] == list(planned["artifacts"]) and "grpo" in planned["to_run"]
    assert main(["sweep", "--json", "store=s", "seed=0,1"]) == 2
    assert "add --plan" in capsys.readouterr().err
    assert not (location / "s").exists()


def test_points_are_all_combinations_of_values():
    points = expand(["+a='x,y'", "seed=range(0,2)", "model=choice(tiny,tiny_llama)", "seed=5,6", "~b"])
    assert points == [
        ["+a='x,y'", f"seed={seed}", f"model={model}", "~b"]
        for seed in (5, 6)
        for model in ("tiny", "tiny_llama")
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.beta=interval(0,1)", "is not a list of values"),
        ("hydra/sweeper=optuna", "setting of Hydra's own sweeps"),
        ("hydra.sweeper.n_trials=3", "setting of Hydra's own sweeps"),
        ("train.beta=[0,", "train.beta"),
        ("launcher.sbatch=[--a=b]", "quote text inside the value"),
    ],
)
def test_what_is_no_list_of_points_is_refused(override, message, location, capsys):
    assert main(["sweep", "seed=0,1", override]) == 2
    assert message in capsys.readouterr().err


def test_failed_points_have_messages(bad_data, location, capsys):
    """A point that fails leaves the others alone, and the table says why."""
    assert main(["sweep", "dataset=gsm8k", f"dataset.path={bad_data}", "seed=0,1"]) == 1
    (written,) = location.glob("store/sweeps/*/sweep.json")
    points = json.loads(written.read_text())["points"]
    assert [point["state"] for point in points] == ["failed", "failed"]
    assert all("fetch" in point["message"] for point in points)
    page = written.with_name("index.html")
    assert points[1]["message"] in page.read_text()
    assert f"page {page}" in capsys.readouterr().out


def test_point_that_cannot_start_is_left_out(location, monkeypatch, capsys):
    started_runs = []

    class Refusing(Run):
        def __init__(self, plan, *more):
            if plan.config.seed == 1:
                raise LaunchError("no such package")
            super().__init__(plan, *more)
            started_runs.append(self)

    monkeypatch.setattr("pipeline.sweep.build.Run", Refusing)
    monkeypatch.setattr(tasks, "build", lambda *_, **__: False)
    assert main(["sweep", "store=s", "seed=0,1,2"]) == 1  # nothing was built of the others either
    (written,) = location.glob("s/sweeps/*/sweep.json")
    points = json.loads(written.read_text())["points"]
    assert [point["state"] for point in points] == ["pending", "invalid", "pending"]
    assert points[1]["message"] == "no such package" and len(started_runs) == 2
    assert "left out seed=1: no such package" in capsys.readouterr().err


def test_hundreds_of_points_need_few_open_files(location, monkeypatch):
    monkeypatch.setattr(tasks, "build", lambda *_, **__: False)
    first, _ = prepare_plan(["store=s"])
    sweep = Sweep(["store=s", "seed=0"])
    points = [Point(number, ["store=s", f"seed={number}"]) for number in range(300)]
    sweep._plans = dict.fromkeys(range(300), first)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    try:
        sweep._build(points)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {point.message for point in points} == {""}
    assert len(history.runs(location / "s")) == 300
    assert {run.state for run in history.runs(location / "s").values()} == {"running"}


SECRET_URL = "https://host/rows.jsonl?sig=SECRET"


def test_no_secret_of_a_point_is_stored_or_shown(location, monkeypatch, capsys):
    """Refused by its plan, by its run, or not at all."""
    overrides = ["store=s", "+engine.env.PROXY='http://me:SECRET@proxy'", "engine=mindrlhf", "seed=0,1"]
    monkeypatch.setattr(tasks, "build", lambda *_, **__: False)
    for typed in ([f"reward.functions=[{SECRET_URL}]", "store=s", "seed=0,1"], overrides):
        for options in ([], ["--plan"], ["--plan", "--json"]):
            main(["sweep", *options, *typed])
    run = Run(*prepare_plan(["store=s", "report.title='s3://KEY:SEC/RET-SECRET@b/y'"]),
              ["store=s", "report.title='s3://KEY:SEC/RET-SECRET@b/y'"])  # fmt: skip
    run._report_failure("fetch", "cannot read https://user:SECRET@host/x")
    for words in (["runs"], ["runs", "--json"], ["show", "last"], ["show", "last", "--json"]):
        main([*words, "store=s"])
    main(["run", "remote=s3://KEY:SEC/RET-SECRET@b/y"])
    main(["run", f"no.such.key={SECRET_URL}"])
    shown = capsys.readouterr()
    assert "SECRET" not in shown.out
    assert "SECRET" not in shown.err
    files = [file for file in location.rglob("*") if file.is_file()]
    assert {file.name for file in files} >= {"runs.jsonl"}
    assert [str(file) for file in files if b"SECRET" in file.read_bytes()] == []
