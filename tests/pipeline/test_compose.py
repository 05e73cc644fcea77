import pytest

from pipeline.config.compose import compose
from pipeline.errors import ConfigError


def told(*overrides, config_dir=None):
    with pytest.raises(ConfigError) as error:
        compose(overrides, config_dir)
    return [str(problem) for problem in error.value.problems]


def test_defaults_are_plain_data():
    values = compose([])
    assert values["model"]["name"] == "tiny"
    assert values["layout"]["train"]["model_parallel"] == 2
    assert type(values["layout"]["train"]) is dict


def test_a_layout_needs_no_file():
    train = compose(["layout=dp2_mp4_pp2_cp3_ep5"])["layout"]["train"]
    degrees = [train[key] for key in ("data_parallel", "model_parallel", "pipeline_stage")]
    assert degrees == [2, 4, 2]
    assert (train["context_parallel"], train["expert_parallel"]) == (3, 5)


def test_a_later_override_wins_over_the_layout_s_name():
    assert (
        compose(["layout=dp2_mp4_pp1", "layout.train.model_parallel=1"])["layout"]["train"]["model_parallel"]
        == 1
    )


def test_the_dataset_brings_its_tokenisation_and_reward():
    values = compose(["dataset=gsm8k"])
    assert values["dataset"]["name"] == "gsm8k"
    assert values["tokenize"] == compose(["dataset=gsm8k", "tokenize=gsm8k"])["tokenize"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.betta=1", "train.betta=1: unknown key; did you mean train.beta?"),
        ("model=tinny", "model=tinny: no such choice; known: "),
        ("layout=dp2", "layout=dp2: no such choice; known: "),
        ("train.beta", "overrides=train.beta: "),
        ("nonsense=1", "nonsense=1: unknown key"),
    ],
)
def test_mistakes_are_told_in_one_line(override, message):
    problems = told(override)
    assert len(problems) == 1
    assert problems[0].startswith(message)
    assert "\n" not in problems[0]


def test_a_directory_of_own_groups(tmp_path):
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout" / "dp1_mp1_pp1.yaml").write_text("defaults: [named]\ntrain: {micro_batch_num: 7}\n")
    values = compose(["layout=dp1_mp1_pp1"], tmp_path)
    assert values["layout"]["train"]["micro_batch_num"] == 7
    assert told(config_dir=tmp_path / "absent")[0].endswith("absent: must be a directory")


def test_the_store_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("GRPOFLOW_STORE", raising=False)
    assert compose([])["store"] == "store"
    monkeypatch.setenv("GRPOFLOW_STORE", "/data/store")
    assert compose([])["store"] == "/data/store"
    assert compose(["store=/mine"])["store"] == "/mine"


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["train.beta=0.5", "seed=3", "train.beta=0.7"],
        ["model=qwen2_5_7b", "model.path=/a b", "layout=dp1_mp4_pp2", "layout.train.offset=[1,-1]"],
        ["layout.train={data_parallel: 4, model_parallel: 1}", "cards=4"],
        ["+train.extra=1", "train.extra=2"],
        ["dataset=gsm8k", "dataset.columns.prompt=problem", "~evaluate.k"],
        ["store=${oc.env:HOME}/x", "train.steps=${seed}"],
        [
            "reward.functions=[accuracy,format]",
            "model.path=null",
            "sft.enabled=false",
            "train.learning_rate=1e-5",
        ],
    ],
)
def test_the_result_is_hydra_s_own(overrides):
    import hydra
    from omegaconf import OmegaConf

    expanded = []
    for override in overrides:
        named = override == "layout=dp1_mp4_pp2"
        train = "layout.train."
        degrees = [f"{train}model_parallel=4", f"{train}pipeline_stage=2"]
        expanded += ["layout=named", *degrees] if named else [override]
    with hydra.initialize_config_module("conf", version_base="1.3"):
        expected = OmegaConf.to_container(hydra.compose("config", overrides=expanded), resolve=True)
    assert compose(overrides) == expected


def test_a_sweep_is_refused_where_one_value_is_needed():
    assert "not a sweep" in told("train.beta=0.1,0.2")[0]
    assert told("model=tiny,qwen2_5_7b")


def test_values_of_one_composition_do_not_leak_into_the_next():
    assert compose(["layout.train.offset=[1]"])["layout"]["train"]["offset"] == [1]
    assert compose([])["layout"]["train"]["offset"] == []


@pytest.mark.parametrize("steps", [5, 6])
def test_a_default_follows_the_value_that_it_refers_to(steps):
    assert compose([f"rollout.max_tokens={steps}"])["sft"]["max_tokens"] == steps


def test_a_reference_to_a_missing_key_may_be_replaced(tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine.yaml").write_text("defaults: [default]\ntitle: ${nowhere.to.be}\n")
    assert compose(["report=mine", "report.title=here"], tmp_path)["report"]["title"] == "here"
