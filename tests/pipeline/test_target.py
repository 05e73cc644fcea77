"""A part of the graph, stages anew, and artifacts brought along."""

import json
from dataclasses import replace

import luigi
import pytest

from pipeline import tasks
from pipeline.cli import main
from pipeline.errors import ConfigError, StageFailed
from pipeline.plan.graph import anew
from pipeline.plan.target import Target
from pipeline.run import build as building
from pipeline.run import run as running
from pipeline.run.run import Run, prepare_plan
from pipeline.store import collect, history
from pipeline.store.store import Key, Store
from stages.base.graph import Stage
from tests.pipeline.artifacts import commit_spec

GRAPH = [
    Stage("fetch", ()),
    Stage("data", ()),
    Stage("strategy", (), skipped="no layout"),
    Stage("tokenize", (), {"a": "fetch", "b": "data"}),
    Stage("split", (), {"a": "fetch"}),
    Stage("grpo", (), {"weights": "split", "data": "tokenize"}),
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As in a process of their own; called, once more."""

    def anew():
        monkeypatch.setattr(tasks, "_runs", {})
        luigi.task_register.Register.clear_instance_cache()
        running._next.cache_clear()

    anew()
    return anew


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        (Target(), "fetch data tokenize split grpo"),
        (Target("split"), "fetch data tokenize split"),
        (Target(only=("split",)), "fetch split"),
        (Target(only=("split", "data")), "fetch data split"),
        (Target("tokenize", force=("fetch",)), "fetch data tokenize"),
    ],
)
def test_until_follows_the_order_and_only_the_inputs(target, asked):
    assert target.asked(GRAPH) == set(asked.split())


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (Target("spilt"), "--until=spilt: no such stage; did you mean split?"),
        (
            Target("strategy"),
            "--until=strategy: is left out of this run: no layout; choose another stage: data is",
        ),
        (Target("split", ("grpo",)), "--until=split: cannot stand beside --only"),
        (Target("split", force=("grpo",)), "--force=grpo: is not among what --until split asks for"),
        (Target(only=("split",), force=("data",)), "--force=data: is not among what --only split asks for"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_reason(target, told):
    with pytest.raises(ConfigError) as error:
        target.asked(GRAPH)
    assert str(error.value.problems[0]).startswith(told)


def test_options_repeat_and_hold_commas():
    target = Target.of(None, ["split,data", "split"], [" fetch , data"])
    assert target == Target(None, ("split", "data"), ("fetch", "data"))
    assert (
        str(target) == "--only split,data" and str(Target("grpo")) == "--until grpo" and str(Target()) == ""
    )


def made(store, *overrides, target=None):
    """Artifacts of all that a plan lacks."""
    planned, _ = prepare_plan([f"store={store.root}", *overrides], target=target)
    for spec in planned.specs:
        if store.problem(spec.key) is not None:
            rows = {"files": {name: {"records": 9_999} for name in ("train", "sft")}}
            commit_spec(store, spec, {"result.json": json.dumps(rows)} if spec.name == "tokenize" else {})


def rows(capsys, *arguments):
    main(["plan", "--json", *arguments])
    stages = json.loads(capsys.readouterr().out)["stages"]
    return {row["stage"]: (row["state"], row["reason"]) for row in stages}


def test_a_plan_has_only_what_is_asked_for(tmp_path, capsys):
    store = f"store={tmp_path}"
    assert list(rows(capsys, "--only", "tokenize", store)) == ["fetch", "fetch_dataset", "tokenize"]
    assert list(rows(capsys, "--until", "convert", store)) == ["fetch", "fetch_dataset", "convert"]
    made(Store(tmp_path))
    assert main(["plan", "--until", "split", store]) == 0
    assert main(["plan", "--until", "sft", "sft.enabled=false", store]) == 2
    assert "grpo starts from split's weights; choose another stage: split" in capsys.readouterr().err


def test_forced_stages_and_what_reads_them_get_another_place_and_nothing_else_does(tmp_path, capsys):
    store = Store(tmp_path)
    made(store)
    found = rows(capsys, "--force", "grpo", f"store={tmp_path}")
    assert found["grpo"] == ("RUN", "built anew (--force)")
    assert found["evaluate"] == ("RUN", "input changed: after")
    cached = {name for name, (state, _) in found.items() if state == "CACHED"}
    assert cached == {"fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split", "sft"}
    assert main(["plan", f"store={tmp_path}"]) == 0  # nothing was built anew yet


def test_what_the_store_lacks_is_forced_under_its_own_name(tmp_path):
    forced, usual = (
        prepare_plan([f"store={tmp_path}"], target=target)[0] for target in (Target(force=("split",)), None)
    )
    assert forced.specs == usual.specs


def run(tmp_path, *arguments):
    return main(["run", *arguments, f"store={tmp_path}"])


def test_built_anew_it_counts_for_later_runs_and_the_earlier_one_stays(tmp_path, capsys, fresh):
    assert run(tmp_path, "--only", "strategy") == 0
    (first,) = history.runs(tmp_path).values()
    place = tmp_path / first.artifact("strategy")
    assert capsys.readouterr().out.endswith(f"\ndone run={first.id} strategy={place}\n")
    assert (first.state, first.target, list(first.artifacts)) == ("finished", "--only strategy", ["strategy"])
    fresh()
    assert run(tmp_path, "--only", "strategy", "--force", "strategy") == 0
    second = history.find(tmp_path, "last")
    assert second.artifact("strategy") != first.artifact("strategy")
    planned, store = prepare_plan([f"store={tmp_path}"])
    assert str(planned.spec("strategy").key) == second.artifact("strategy")
    for artifact in (first, second):
        assert (tmp_path / artifact.artifact("strategy") / "manifest.json").exists()
    assert {item.path.name for item in collect.collect(store, keep=1, delete=False)} >= {place.name}
    capsys.readouterr()
    assert main(["runs", f"store={tmp_path}"]) == 0
    assert capsys.readouterr().out.count("--only strategy --force strategy") == 1
    assert main(["show", second.id, f"store={tmp_path}"]) == 0
    assert "\noptions    --only strategy --force strategy\n" in capsys.readouterr().out


def test_what_fails_after_a_forced_stage_says_that_this_one_is_done(tmp_path, monkeypatch, capsys):
    store, overrides, target = Store(tmp_path), [f"store={tmp_path}"], Target(force=("strategy",))

    def fails(spec, *_, **__):
        raise StageFailed(spec.name, "exit code 1", tmp_path / "log", [])

    made(store)
    monkeypatch.setattr(building, "build", fails)
    monkeypatch.setattr(running, "_check_environment", lambda: None)
    planned, _ = prepare_plan(overrides, target=target)
    run = Run(planned, store, overrides)
    with pytest.raises(StageFailed):
        run.build("strategy")
    assert "without --force" not in capsys.readouterr().err
    commit_spec(store, planned.spec("strategy"), {"file": "x"})
    with pytest.raises(StageFailed):
        run.build("split")
    assert "note: strategy: built anew, and counts; go on without --force\n" in capsys.readouterr().err


def test_an_attempt_anew_that_fails_loses_nothing(tmp_path, monkeypatch):
    store, overrides = Store(tmp_path), [f"store={tmp_path}"]
    made(store)
    before, _ = prepare_plan(overrides)

    def fails(*_):
        raise StageFailed("strategy", "exit code 1", tmp_path / "log", [])

    monkeypatch.setattr(building, "build", fails)
    monkeypatch.setattr(running, "_check_environment", lambda: None)
    planned, _ = prepare_plan(overrides, target=Target(force=("strategy",)))
    with pytest.raises(StageFailed):
        Run(planned, store, overrides).build("strategy")
    after, _ = prepare_plan(overrides)
    assert after.specs == before.specs and all(store.problem(spec.key) is None for spec in after.specs)


def test_two_that_force_the_same_share_one_attempt_and_the_next_one_makes_another(tmp_path, fresh):
    store, target = Store(tmp_path), Target(force=("split",))
    made(store)
    places = []
    for done in (False, True, False):
        fresh()  # another process
        planned, _ = prepare_plan([f"store={tmp_path}"], target=target)
        places.append(planned.spec("split").key)
        if done:
            made(store, target=target)
            Run(planned, store, [])
    assert places[0] == places[1] != places[2]


def test_an_artifact_is_brought_along(tmp_path, capsys, fresh):
    there, here = Store(tmp_path / "there"), tmp_path / "here"
    planned, _ = prepare_plan([f"store={there.root}"])
    place = commit_spec(there, planned.spec("strategy"), {"more/notes": "text"})
    options = ["--only", "strategy", "--from", str(place)]
    assert rows(capsys, *options, f"store={here}") == {"strategy": ("RUN", f"taken from {place}")}
    assert not here.exists() or not list(here.glob("strategy/*"))
    assert run(here, *options) == 0
    told = capsys.readouterr()
    assert f"strategy: taken from {place}" in told.err and told.out.count("done run=") == 1
    taken = here / "strategy" / place.name
    assert (taken / "more" / "notes").read_text() == "text" and Store(here).problem(
        planned.spec("strategy").key
    ) is None
    fresh()
    assert run(here, *options) == 0
    assert "strategy: is in the store already" in capsys.readouterr().err


def test_what_does_not_belong_to_the_plan_is_refused_with_both_fingerprints(tmp_path, capsys):
    there = Store(tmp_path / "there")
    planned, _ = prepare_plan([f"store={there.root}", "layout=dp2_mp1_pp1"])
    place = commit_spec(there, planned.spec("strategy"), {"file": "x" * 70_000})
    here = f"store={tmp_path / 'here'}"
    mine = prepare_plan([here])[0].spec("strategy").key.fingerprint[:16]
    assert main(["run", "--from", str(place), here]) == 2
    told = capsys.readouterr().err
    assert f"is strategy {place.name}, and this plan's is {mine} (layout." in told
    assert main(["plan", "--only", "tokenize", "--from", str(place), here]) == 2
    assert "which is not asked for" in capsys.readouterr().err
    assert main(["plan", "--from", str(tmp_path), here]) == 2
    assert "is no artifact: manifest missing" in capsys.readouterr().err
    file = place / "file"
    file.chmod(0o644)
    file.write_text("y" * 70_000)
    assert main(["run", "--only", "strategy", "layout=dp2_mp1_pp1", "--from", str(place), here]) == 2
    assert "is damaged: output corrupt: file has sha256" in capsys.readouterr().err
    assert not (tmp_path / "here" / "strategy").exists()


def test_what_was_built_anew_elsewhere_is_refused_with_what_can_be_brought(tmp_path, capsys):
    there, here = Store(tmp_path / "there"), f"store={tmp_path / 'here'}"
    spec = prepare_plan([f"store={there.root}"])[0].spec("strategy")
    place = commit_spec(there, replace(spec, key=anew(spec.key, 2)), {})
    asked = ["plan", "--only", "strategy", "--from"]
    assert main([*asked, str(place), here]) == 2
    assert (
        "built anew (--force) there" in (told := capsys.readouterr().err) and "leave this --from out" in told
    )
    first = commit_spec(there, spec, {})
    assert main([*asked, str(place), here]) == 2
    assert f"give {first}" in capsys.readouterr().err
    assert main([*asked, str(first), here]) == 10


def test_what_was_made_from_something_built_anew_elsewhere_is_refused_with_what_can_be_done(tmp_path, capsys):
    there, here = Store(tmp_path / "there"), f"store={tmp_path / 'here'}"
    usual, _ = prepare_plan([here])
    fetch = usual.spec("fetch")
    commit_spec(there, replace(fetch, key=(second := anew(fetch.key, 2))), {})
    convert = replace(usual.spec("convert"), key=Key("convert", "c" * 64), inputs={"fetch": second})
    commit_spec(there, convert, {})
    split = replace(usual.spec("split"), inputs={**usual.spec("split").inputs, "convert": convert.key})
    place = commit_spec(there, replace(split, key=Key("split", "d" * 64)), {})
    assert main(["plan", "--only", "split", "--from", str(place), here]) == 2
    told = capsys.readouterr().err
    assert "made from fetch, which was built anew (--force) there" in told
    assert "leave this --from out" in told and "type the configuration" not in told


def test_points_of_a_sweep_are_built_as_far_as_is_asked(tmp_path, capsys):
    there = Store(tmp_path / "there")
    planned, _ = prepare_plan([f"store={there.root}", "layout=dp2_mp1_pp1"])
    place = commit_spec(there, planned.spec("strategy"), {})
    points = ["-m", f"store={tmp_path / 'here'}", "layout=dp2_mp1_pp1", "seed=0,1", "--only", "strategy"]
    points += ["--from", str(place)]
    assert main(["sweep", "--plan", *points]) == 0
    told = capsys.readouterr()
    assert "1 stages to run; 2 if each" in told.out and f"strategy: would be taken from {place}" in told.err
    assert main(["sweep", *points]) == 0
    assert "2 points (2 finished)" in capsys.readouterr().out
    (page,) = (tmp_path / "here" / "sweeps").glob("*/index.html")
    assert "--only strategy" in page.read_text()
    here = Store(tmp_path / "here")
    assert {run.target for run in history.runs(here.root).values()} == {"--only strategy"}
    assert sorted(path.name for path in here.root.iterdir() if not path.name.startswith(".")) == [
        "runs.jsonl", "strategy", "sweeps",
    ]  # fmt: skip
    assert main(["sweep", *points, "--force", "grpo"]) == 2
    assert "--force=grpo: is not among what --only strategy asks for" in capsys.readouterr().err


def test_a_search_needs_what_it_is_led_by(capsys):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    search = ["hydra/sweeper=optuna", "train.learning_rate=interval(0.0001,0.001)", "--until", "grpo"]
    assert main(["sweep", *search]) == 2
    assert "is led by held-out accuracy, which --until grpo does not measure" in capsys.readouterr().err
