from stages.report import tables
from stages.report.artifacts import Run
from tests.stages.report.synthetic import role


def test_roles_stand_side_by_side():
    columns, rows = tables.config({"name": "x", "train": role(1, 2), "generate": role(2, 1)})
    assert columns == ["train", "generate"]
    assert rows[0] == ("name", "x") and rows[1] == ("data_parallel", "1", "2")
    assert tables.config({"a": {"b": 1}, "c": {"d": None}}) == ([], [("a.b", "1"), ("c.d", "null")])


def test_training_figures():
    rows = [{"step": i, "kl": float(i), "clip_fraction": 0.5} for i in range(1, 21)]
    assert tables.training(rows) == [
        ("clip_fraction", "50.0 %", "50.0 %", "50.0 %", "50.0 %", "50.0 %"),
        ("kl", "1", "20", "19.5", "1", "20"),
    ]


def test_step_time_adds_up_to_the_step():
    parts = tables.step_time([{"step": 1, "rollout_s": 2.0, "train_s": 1.0, "step_s": 4.0}])
    assert [(name, seconds, share) for _, name, seconds, share in parts] == [
        ("Rollout", 2, 50), ("Update", 1, 25), ("Everything else", 1, 25),
    ]  # fmt: skip
    assert tables.step_time([]) == []


def test_bytes_of_a_role_come_from_the_latest_stage_that_wrote_it(run):
    loaded = Run.load(run)
    assert tables.rank_bytes(loaded, "train") == {0: 1_700_000, 1: 1_700_001}
    assert tables.rank_bytes(loaded, "generate") == {0: 3_300_000, 1: 3_300_000}
    assert tables.rank_bytes(loaded, "reference") == {}


def test_environment_tells_stages_apart_that_differ(run):
    loaded = Run.load(run)
    assert dict(tables.environment(loaded))["mindspore"] == "2.7.0"
    loaded.manifests["grpo"]["host"] = "node7"
    assert dict(tables.environment(loaded))["host"].endswith("node7 (grpo)")


def test_verdicts_and_parts():
    assert tables.verdict({"before_reward": 0.2, "after_reward": 1.2}) == "better"
    assert tables.verdict({"before_reward": 1, "after_reward": 0}) == "worse"
    assert tables.verdict({"before_reward": 1.0, "after_reward": 1.0}) == "same"
    assert tables.verdict({"before_reward": None}) == ""
    sample = tables.samples([{"prompt": 7, "after": "x", "after_parts": {"answer_format": 1.0}}], 3, 100)[0]
    assert sample.prompt == "7" and sample.answers[1] == ("After", "x", "–", (("answer format", "1"),))


def test_only_completions_of_the_last_step_are_shown():
    rows = [{"step": step, "prompt": f"p{step}", "completion": "c", "reward": 1, "parts": {"a": 0.5}}
            for step in (3, 1, 3, 2)]  # fmt: skip
    assert tables.drawn(rows, 3, 100) == [("p3", "c", "1", "a 0.500")] * 2
    assert tables.drawn([{"prompt": "no step"}], 3, 100) == []


def test_what_differs_from_the_defaults(run):
    loaded = Run.load(run)
    defaults = {**{name: loaded.section(name) for name in ("model", "train", "dataset")}, "seed": 7}
    seed = loaded.manifests["grpo"]["config"]["seed"]
    assert ("seed", str(seed), "7") in tables.differing(loaded, defaults)
    changed = {**defaults, "train": {**defaults["train"], "steps": 3}}
    rows = [row for row in tables.differing(loaded, changed) if row[0].startswith("train.")]
    assert rows == [("train.steps", str(loaded.section("train")["steps"]), "3")]
    assert tables.differing(loaded, {}) == []
