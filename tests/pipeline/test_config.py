import pytest

from pipeline.config.load import load, without_locations
from pipeline.errors import ConfigError


def told(*overrides):
    with pytest.raises(ConfigError) as error:
        load(overrides)
    return str(error.value)


def test_the_default_splits_for_training_and_replicates_for_generation():
    config = load([])
    assert config.cards == 2
    assert config.layout.name == "dp1_mp2_pp1"
    assert config.layout.generate.name == "dp2_mp1_pp1"
    assert config.layout.reference.name == "dp1_mp2_pp1"
    assert config.split.roles == ("train",)


@pytest.mark.parametrize(
    ("overrides", "sequences"),
    [
        ("experiment=mindrlhf_7b", 1024),
        ("experiment=mindrlhf_7b engine.max_model_len=2048", 1024),
        ("experiment=mindrlhf_7b rollout.max_tokens=128 engine.max_model_len=640", 640),
        (
            "experiment=mindrlhf_deepseek_v3 model.path=. rollout.max_tokens=9 tokenize.max_prompt_length=9",
            128,
        ),
        ("experiment=mindrlhf_7b engine.max_num_seqs=1500", 1500),
    ],
)
def test_as_many_sequences_as_fit_when_nobody_typed_a_number(overrides, sequences):
    engine = load(overrides.split()).engine
    assert engine.name == "mindrlhf" and engine.max_num_seqs == sequences


def test_a_typed_number_of_sequences_does_not_give_way():
    assert "engine.max_num_seqs=1024: must be at most" in told(
        "experiment=mindrlhf_7b",
        "rollout.max_tokens=128",
        "engine.max_model_len=640",
        "engine.max_num_seqs=1024",
    )


def test_without_sft_every_role_is_split():
    assert load(["sft.enabled=false"]).split.roles == ("train", "generate", "reference")


def test_generate_and_reference_follow_from_train():
    config = load(["layout=dp2_mp2_pp1", "cards=4", "train.prompts_per_step=32"])
    assert config.cards == 4
    assert config.layout.generate.name == config.layout.reference.name == "dp2_mp2_pp1"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seed=x"], "seed=x: must be a whole number"),
        (["seed=-1"], "seed=-1: must be at least 0"),
        (["train.beta=yes"], "train.beta=yes: must be a number"),
        (["+train.extra=1"], "train.extra=1: unknown key"),
        (["+extra=1"], "extra=1: unknown key"),
        (
            ["layout=dp1_mp4_pp1"],
            "must divide num_key_value_heads=2 (mindformers llama_transformer.py:187, "
            "Megatron-LM transformer_config.py); use 2",
        ),
        (["model.path=x"], "model.path=x: must be a Hugging Face directory with a config.json"),
        (["fetch.endpoint=http://u:p@h"], "fetch.endpoint=…@h: must not hold a user or password"),
        (["engine.device_target=TPU"], "engine.device_target=TPU: must be one of CPU, Ascend, GPU"),
        (["engine.name=ppo"], "engine.name=ppo: is the label of the chosen engine"),
        (["launcher.master_port=80"], "launcher.master_port=80: must be at least 1024"),
    ],
)
def test_a_wrong_value_is_told_with_its_key_and_rule(overrides, message):
    assert message in told(*overrides)


def test_all_mistakes_are_told_at_once():
    text = told("seed=x", "train.steps=0", "model.hidden_size=none")
    assert text.count("\n") == 2


def test_equal_values_written_differently_are_equal():
    assert load(["train.beta=1"]).plain() == load(["train.beta=1.0"]).plain()
    assert load(["train.learning_rate=1e-4"]).plain() == load(["train.learning_rate=0.0001"]).plain()


def test_variables_of_an_engine_are_free_names():
    config = load(["engine=mindrlhf", "+engine.env.HCCL_BUFFSIZE=200"])
    assert config.engine.name == "mindrlhf" and config.engine.env == {"HCCL_BUFFSIZE": "200"}
    assert "engine.env.A=True: must be text" in told("engine=mindrlhf", "+engine.env.A=true")


def test_a_setting_of_another_engine_is_an_unknown_key():
    assert "unknown key" in told("engine.use_vllm=1")
    assert "did you mean engine.use_vllm?" in told("engine=mindrlhf", "engine.use_vlm=1")


def test_a_layout_named_beside_an_experiment_wins(tmp_path):
    for name in ("model", "data"):
        (tmp_path / name).mkdir()
    given = [
        "experiment=mindrlhf_7b",
        f"model.path={tmp_path / 'model'}",
        f"dataset.path={tmp_path / 'data'}",
    ]
    shipped, larger = load(given), load([*given, "layout=dp8_mp4_pp1"])
    assert (shipped.layout.name, shipped.cards) == ("dp1_mp4_pp2", 8)
    assert (larger.layout.name, larger.cards) == ("dp8_mp4_pp1", 32)
    assert shipped.layout.train.recompute and larger.layout.train.recompute


def test_a_published_command_has_no_places_of_a_machine():
    told = [
        "engine=mindrlhf", "experiment=mindrlhf_7b", "cards=8", "seed=1", "train.beta=0.02",
        "+engine.epochs=2", "model.rope_scaling.factor=8", "layout.train.data_parallel=2",
    ]  # fmt: skip
    private = [
        "store=/home/me", "remote=s3://u:secret@bucket", "remote.endpoint=https://inside", "launcher=ssh",
        "launcher.hosts_file=/home/me/hosts", "+engine.env.TOKEN=secret", "engine.env={TOKEN:secret}",
        "engine.mindrlhf_home=/home/me/mindrlhf", "engine.python=/home/me/python", "~train.loggers",
        "mindformers.env.TOKEN=secret", "model.path=/home/me/model", "dataset.path=/home/me/rows",
        "fetch.retries=3",
    ]  # fmt: skip
    assert without_locations([*private, *told], "mindrlhf") == told
    assert without_locations(private, "") == []
