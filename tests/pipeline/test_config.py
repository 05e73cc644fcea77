"""Loading a configuration: derived values, strict types, and the overrides that a run publishes."""

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.run.origin import published
from tests.pipeline.plans import problem_of


@pytest.mark.parametrize(("tokens", "sequences"), [(1024, 1024), (640, 640)])
def test_the_default_number_of_sequences_is_the_largest_that_fits(tokens, sequences):
    overrides = ["experiment=mindrlhf_7b", "rollout.max_tokens=128", f"engine.max_model_len={tokens}"]
    engine = load(overrides).engine
    assert engine.name == "mindrlhf" and engine.max_num_seqs == sequences


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("seed=x", "seed"), ("seed=-1", "seed"), ("seed=true", "seed"), ("train.beta=yes", "train.beta"),
        ("train.beta=nan", "train.beta"), ("train.beta=-0.001", "train.beta"),
        ("train.learning_rate=0", "train.learning_rate"), ("train.learning_rate=inf", "train.learning_rate"),
        ("rollout.top_p=0", "rollout.top_p"), ("rollout.top_p=1.001", "rollout.top_p"),
        ("model.eos_token_id=[-1]", "model.eos_token_id[0]"),
        ("+train.extra=1", "train.extra"), ("+extra=1", "extra"), ("model.path=x", "model.path"),
        ("fetch.endpoint=http://u:p@h", "fetch.endpoint"), ("train.steps=1.5", "train.steps"),
        ("engine.device_target=TPU", "engine.device_target"), ("engine.use_vllm=1", "engine.use_vllm"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_reported_with_its_key(override, key):
    assert problem_of([override]).path == key


@pytest.mark.parametrize("layout", ["dp0_mp1_pp1", "dp1_mp0_pp1", "dp1_mp1_pp0", "dp1_mp1_pp1_cp0"])
def test_a_layout_without_cards_is_refused(layout):
    for overrides in ([f"layout={layout}"], ["engine=mindrlhf", f"layout={layout}"]):
        with pytest.raises(ConfigError) as refused:
            load(overrides)
        paths = {problem.path for problem in refused.value.problems}
        assert "cards" in paths and all(path.startswith("layout.") for path in paths - {"cards"})


def test_a_huge_degree_is_refused_at_once():
    with pytest.raises(ConfigError, match=r"layout\.train\.model_parallel"):
        load(["layout=dp1_mp999999999999_pp1"])


def test_checkouts_have_absolute_paths(tmp_path, monkeypatch):
    """Programs run in their work directories."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mindformers").mkdir()
    config = load(["engine=mindrlhf", "engine.sft=mindformers", "mindformers.home=mindformers"])
    assert config.mindformers.home == f"{tmp_path}/mindformers"
    config = load(["engine=mindrlhf", "engine.mindformers_home=./mindformers"])
    assert config.engine.mindformers_home == f"{tmp_path}/mindformers"


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigError) as refused:
        load(["seed=x", "train.steps=0", "model.hidden_size=none"])
    paths = {problem.path for problem in refused.value.problems}
    assert paths == {"seed", "train.steps", "model.hidden_size"}


def test_a_layout_replaces_the_layout_of_an_experiment(tmp_path):
    for name in ("model", "data"):
        (tmp_path / name).mkdir()
    overrides = [
        "experiment=mindrlhf_7b",
        f"model.path={tmp_path / 'model'}",
        f"dataset.path={tmp_path / 'data'}",
    ]
    shipped, larger = load(overrides), load([*overrides, "layout=dp8_mp4_pp1"])
    assert (shipped.layout.name, shipped.cards) == ("dp1_mp4_pp2", 8)
    assert (larger.layout.name, larger.cards) == ("dp8_mp4_pp1", 32)
    assert shipped.layout.train.recompute and larger.layout.train.recompute


def test_published_overrides_contain_no_paths_or_machines():
    public = [
        "engine=mindrlhf", "experiment=mindrlhf_7b", "cards=8", "seed=1", "train.beta=0.02",
        "+engine.epochs=2", "model.rope_scaling.factor=8", "layout.train.data_parallel=2",
    ]  # fmt: skip
    private = [
        "store=/home/me", "remote=s3://u:secret@bucket", "remote.endpoint=https://inside", "launcher=ssh",
        "launcher.hosts=[a,b]", "+engine.env.TOKEN=secret", "engine.env={TOKEN:secret}",
        "engine.mindrlhf_home=/home/me/mindrlhf", "engine.python=/home/me/python", "~train.loggers",
        "mindformers.env.TOKEN=secret", "model.path=/home/me/model", "dataset.path=/home/me/rows",
        "fetch.retries=3",
    ]  # fmt: skip
    config = load(["engine=mindrlhf", "+engine.env.TOKEN=secret"]).plain()
    config["engine"]["epochs"], config["model"]["rope_scaling"] = 2, {"factor": 8}
    assert published([*private, *public], config) == public
