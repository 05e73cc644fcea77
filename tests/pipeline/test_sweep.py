"""Sweeps: points, their plan, keys that all must share, and points that fail."""

import itertools
import json
import os
import resource
import time

import pytest

from launch.errors import LaunchError
from pipeline import tasks
from pipeline.cli import main
from pipeline.config.compose import BUILT_IN
from pipeline.errors import ConfigError
from pipeline.plan import checks
from pipeline.run import build as run_build
from pipeline.run import stage_job
from pipeline.run.run import Run, prepare_plan
from pipeline.store import history
from pipeline.sweep.build import Sweep
from pipeline.sweep.points import expand
from tests.pipeline.artifacts import RESULT, commit_spec, complete

REWARDS = sorted(file.stem for file in (BUILT_IN / "reward").glob("*.yaml"))


@pytest.fixture(autouse=True)
def location(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nothing_runs(monkeypatch):
    """Luigi builds nothing, and reports a failure."""
    monkeypatch.setattr(tasks, "build", lambda *_, **__: False)


def plan_lines(capsys, *words, code=0):
    assert main(["sweep", "--plan", "--json", *words]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def points_of(location):
    (written,) = location.glob("s/sweeps/*/sweep.json")
    return written, json.loads(written.read_text())["points"]


def test_plan_has_a_line_per_point_and_points_share_artifacts(location, capsys):
    points = plan_lines(capsys, "store=s", "train.beta=0.0,0.1", "layout=dp2_mp1_pp1,tiny,dp1_mp3_pp1")
    refused = [point for point in points if point["state"] == "invalid"]
    assert len(points) == 6 and len(refused) == 2
    assert all((point["to_run"], point["artifacts"]) == ([], {}) for point in refused)
    assert "layout.train.model_parallel=3" in refused[0]["message"]
    planned = [point for point in points if point not in refused]
    assert planned[0]["overrides"] == ["store=s", "train.beta=0.0", "layout=dp2_mp1_pp1"]
    assert all(point["to_run"] == list(point["artifacts"]) for point in planned)
    counts = [
        len({point["artifacts"][stage] for point in planned}) for stage in ("tokenize", "split", "grpo")
    ]
    assert counts == [1, 2, 4]
    assert main(["sweep", "--json", "store=s", "seed=0,1"]) == 2
    assert not (location / "s").exists()


def test_the_expected_time_is_that_of_each_points_own_steps(location, shown):
    complete(["store=s", "train.steps=10"], started=0.0, ended=10.0)
    out = shown("sweep", "--plan", "store=s", "train.steps=10,20,40", code=0).out
    (grpo,) = (line for line in out.split("\n") if "grpo" in line)
    assert "10 s to 40 s" in grpo
    # two times grpo (20 s and 40 s), evaluate, export and report
    assert "8 stages to run" in out and "expected from earlier runs: 2 min 00 s" in out


def test_waiting_for_other_points_does_not_count(location, monkeypatch):
    began = time.time()

    def build(runs, workers, cards, queue):
        """Let each point wait for the one before; fetch takes 10 s and fetch_dataset 20 s."""
        offset = 0
        for number, run in enumerate(runs):
            for spec in run.plan.requested:
                if run.store.problem(spec.key) is not None:
                    took = 10 if spec.name == "fetch" else 20
                    times = {"started": began + offset, "ended": began + offset + took}
                    commit_spec(run.store, spec, {"result.json": json.dumps(RESULT)}, **times)
                    offset += took
            if number < 2:
                run.report()
            else:
                run.display._started["fetch_dataset"] = time.monotonic() - 5
                run._report_failure("fetch_dataset", "exit code 1")
        return True

    monkeypatch.setattr(tasks, "build", build)
    assert main(["sweep", "store=s", "seed=0,1,2", "--until", "fetch_dataset"]) in (0, 1)
    took = [run.took_s for run in history.runs(location / "s").values()]
    assert took == [pytest.approx(seconds, abs=0.5) for seconds in (30, 30, 35)]


def test_points_are_all_combinations_of_values():
    points = expand(["+a='x,y'", "seed=range(5,7)", "model=choice(tiny,tiny_llama)", "~b", "c.d=1", "c.d=2"])
    assert points == [
        ["+a='x,y'", f"seed={seed}", f"model={model}", "~b", "c.d=2"]
        for seed in (5, 6)
        for model in ("tiny", "tiny_llama")
    ]


@pytest.mark.parametrize(
    "words",
    ["seed=0,1 seed=2,3", "seed=0,1 seed=5", "seed=5 ++seed=0,1", "train.beta=0.1 train.beta=range(0,2)"],
)
def test_a_key_with_several_values_is_given_once(words, shown):
    """Otherwise the values of one of the two would be lost."""
    key = words.partition("=")[0]
    assert f"error: {key}=" in shown("sweep", "--plan", *words.split(), code=2).err


def test_a_pattern_chooses_files_of_a_group(location):
    (location / "own/reward").mkdir(parents=True)
    (location / "own/reward/cosine_short.yaml").write_text("defaults: [cosine]\n")
    assert expand(["reward=glob(*)"]) == [[f"reward={name}"] for name in REWARDS]
    assert expand(["reward=glob(cos*)"], location / "own") == [["reward=cosine"], ["reward=cosine_short"]]
    assert expand(["reward=glob([*],exclude=[a*,b*,c*,d*,g*,j*,k*,n*,o*])"]) == [["reward=think"]]
    for override in ("reward=glob(nosuch*)", "train.beta=glob(*)", "seed=glob(*)"):
        with pytest.raises(ConfigError, match=override.partition("=")[0]):
            expand([override])


def test_an_unknown_choice_leaves_out_its_points(capsys):
    for words in (
        ["layout=dp1_mp1_pp1,nosuch"],
        ["reward=gsm8k,nosuch,dapo"],
        ["store=s", "report.title=a,'${b}'"],
    ):
        states = [point["state"] for point in plan_lines(capsys, "store=s", *words)]
        assert states == ["pending", "invalid", "pending"][: len(states)]
    points = plan_lines(
        capsys, "engine=local,mindrlhf,verl", "engine.epochs=2", "layout=dp1_mp1_pp1", "sft.enabled=false"
    )
    assert "engine.epochs" in points[0]["message"] and "engine.epochs" not in points[1]["message"]


@pytest.mark.parametrize("words", ["trian.beta=1 seed=0,1,2", "seed=0,1 model=nosuch"])
def test_an_error_of_all_points_is_told_once(words, shown):
    told = shown("sweep", "--plan", *words.split(), code=2).err
    assert told.count("error: ") == 1 and "left out" not in told


@pytest.mark.parametrize(
    "override",
    [
        "train.beta=interval(0,1)", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "train.beta=[0,",
        "launcher.sbatch=[--a=b]",
    ],
)  # fmt: skip
def test_what_is_no_list_of_points_is_refused(override, shown):
    assert override.partition("=")[0] in shown("sweep", "seed=0,1", override, code=2).err


@pytest.mark.parametrize(
    "override",
    [
        "store=a,b", "launcher.timeout_s=100,200", "fetch.endpoint=http://a,http://b", "remote.push=on,off",
        "train.loggers=[],[wandb]", "reward.max_failures=1,2", "--config-dir own experiment=one,two",
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [[], ["--plan"]], ids=["run", "plan"])
def test_keys_outside_fingerprints_cannot_be_swept(location, capsys, override, options):
    """Points share artifacts, so the value of one point would win."""
    (location / "own" / "experiment").mkdir(parents=True)
    for name in ("one", "two"):
        text = f"# @package _global_\nstore: {name}\nseed: {len(name)}\n"
        (location / "own" / "experiment" / f"{name}.yaml").write_text(text)
    assert main(["sweep", *options, *override.split()]) == 2
    key = "store" if "experiment" in override else override.partition("=")[0]
    assert f"error: {key}" in capsys.readouterr().err
    assert not list(location.glob("*/sweeps")) and not list(location.glob("*/runs.jsonl"))


def test_a_failed_point_leaves_the_others_alone_and_the_page_says_why(location, capsys):
    for name, text in (("bad", "not json\n"), ("good", '{"question": "1 + 1 =", "answer": "#### 2"}\n')):
        (location / name).mkdir()
        for split in ("train", "test"):
            (location / name / f"{split}.jsonl").write_text(text)
    swept = ["store=s", "dataset=gsm8k", "dataset.path=bad,good", "--until", "fetch_dataset"]
    first, second = plan_lines(capsys, *swept)
    assert first["artifacts"]["fetch_dataset"] != second["artifacts"]["fetch_dataset"]
    assert main(["sweep", *swept]) == 1
    written, points = points_of(location)
    assert [point["state"] for point in points] == ["failed", "finished"]
    assert "fetch_dataset" in points[0]["message"]
    assert points[0]["message"] in written.with_name("index.html").read_text()


def test_a_point_that_cannot_start_is_left_out(location, monkeypatch, nothing_runs, capsys):
    class Refusing(Run):
        def __init__(self, plan, *more, **named):
            if plan.config.seed == 1:
                raise LaunchError("no such package")
            super().__init__(plan, *more, **named)

    monkeypatch.setattr("pipeline.sweep.build.Run", Refusing)
    assert main(["sweep", "store=s", "seed=0,1,2"]) == 1  # nothing was built of the others either
    _, points = points_of(location)
    assert [point["state"] for point in points] == ["pending", "invalid", "pending"]
    assert points[1]["message"] == "no such package"
    assert "left out seed=1: no such package" in capsys.readouterr().err


def test_another_directory_of_groups_makes_another_sweep(location):
    (location / "own").mkdir()
    ids = {Sweep(["store=s", "seed=0"], directory).id for directory in (None, location, location / "own")}
    assert len(ids) == 3


def test_many_points_need_few_open_files(location, nothing_runs):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    try:
        assert main(["sweep", "store=s", "seed=range(0,60)"]) == 1  # nothing was built
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {point["state"] for point in points_of(location)[1]} == {"pending"}  # not invalid
    assert len(history.runs(location / "s")) == 60


def test_no_secret_of_a_point_is_stored_or_shown(location, nothing_runs, capsys):
    """Refused by its plan, by its run, or not at all."""
    url, title = "https://host/rows.jsonl?sig=SECRET", "report.title='s3://KEY:SEC/RET-SECRET@b/y'"
    proxy = ["+engine.env.PROXY='http://me:SECRET@proxy'", "engine=mindrlhf"]
    for typed in ([f"reward.functions=[{url}]"], proxy):
        for options in ([], ["--plan"], ["--plan", "--json"]):
            main(["sweep", *options, "store=s", "seed=0,1", *typed])
    assert main(["sweep", "--plan", "store=s", "seed=0,1", title]) == 2
    run = Run(*prepare_plan(["store=s"]), ["store=s", title])
    run._report_failure("fetch", "cannot read https://user:SECRET@host/x")
    for words in (["runs"], ["runs", "--json"], ["show", "last"], ["show", "last", "--json"]):
        main([*words, "store=s"])
    main(["run", "remote=s3://KEY:SEC/RET-SECRET@b/y"])
    main(["run", f"no.such.key={url}"])
    shown = capsys.readouterr()
    assert "SECRET" not in shown.out + shown.err
    files = [file for file in location.rglob("*") if file.is_file()]
    assert {file.name for file in files} >= {"runs.jsonl"}
    assert [str(file) for file in files if b"SECRET" in file.read_bytes()] == []


@pytest.mark.parametrize(
    ("options", "together"),
    [([], 4), (["--jobs", "3"], 3), (["--cards", "2"], 2)],
    ids=["slurm decides", "jobs", "cards"],
)
def test_slurm_jobs_of_points_do_not_wait_for_this_machines_cards(location, monkeypatch, options, together):
    """Points have one card each; grpo is a job that takes a moment, and evaluate runs here."""
    spans = location / "spans"
    spans.mkdir()

    def take_time(spec, kind):
        began = time.monotonic()
        if kind == "job":  # a busy machine starts them late: wait until all that may run together have begun
            (spans / f"began-{spec.key.flat}").touch()
            while len([*spans.glob("began-*")]) < together and time.monotonic() < began + 30:
                time.sleep(0.01)
        time.sleep(0.3)
        (spans / f"{kind}-{spec.key.flat}").write_text(f"{began} {time.monotonic()}")

    def build_as_job(spec, store, *_):
        take_time(spec, "job")
        commit_spec(store, spec, {"result.json": json.dumps(RESULT)})
        return True

    def build_here(spec, store, *_, **__):
        take_time(spec, "here")
        commit_spec(store, spec, {"result.json": json.dumps(RESULT)})
        return True

    swept = ["store=s", "layout=dp1_mp1_pp1", "launcher=slurm", "launcher.stages=[grpo]"]
    complete(swept, "fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split", "sft")
    monkeypatch.setattr(stage_job, "build_as_job", build_as_job)
    monkeypatch.setattr(run_build, "build", build_here)
    monkeypatch.setattr(checks, "check_machine", lambda *_: None)
    words = [*options, *swept, "--until", "evaluate", "train.beta=0.01,0.02,0.03,0.04"]
    assert main(["sweep", *words]) == 0
    assert most_together(spans.glob("job-*")) == together
    assert most_together(spans.glob("here-*")) <= (2 if "--cards" in options else 1)


def most_together(files):
    """Return how many of the spans of time in files overlap at most."""
    moments = []
    for file in files:
        began, ended = map(float, file.read_text().split())
        moments += [(began, 1), (ended, -1)]
    return max(itertools.accumulate(change for _, change in sorted(moments)))


def test_a_limit_of_jobs_needs_stages_that_are_jobs(shown):
    assert "--jobs=2" in shown("sweep", "--plan", "--jobs", "2", "store=s", "seed=0,1", code=2).err
