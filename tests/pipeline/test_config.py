"""Loading a configuration: derived values, strict types, what a path implies, and published overrides."""

import contextlib
import functools
import json
import os
import sqlite3

import pytest

import grpoflow
from pipeline.cli import main
from pipeline.config.load import load, unchecked
from pipeline.config.store_path import MOST_STORE_BYTES
from pipeline.errors import ConfigError
from pipeline.run.origin import published
from stages.fetch.builtin import write_config
from tests.pipeline.plans import problem_of
from tests.stages.weights.checkpoints import make_model

CASES = [
    ("train.steps=3", "train.warmup_steps", 3),
    ("train.steps=80", "train.warmup_steps", 5),
    ("rollout.num_generations=6", "train.logged_completions", 24),
    ("sft.steps=4", "sft.warmup_steps", 4),
    ("evaluate.num_samples=4", "evaluate.k", 4),
    ("dataset.arith.min_addends=6", "dataset.arith.max_addends", 6),
    ("train.beta=0.1", "train.validate_every", 0),
    ("train.keep_best=true", "train.validate_every", 10),
    ("train.patience=2", "train.validate_every", 10),
    ("dataset.train_rows=100", "sft.check_prompts", 25),
    ("dataset.train_rows=288", "sft.check_prompts", 256),
    ("dataset.train_rows=287", "sft.check_prompts", 71),
    ("dataset=openr1_math tokenize.compat=mindrlhf", "tokenize.chat_template", False),
    ("dataset=openr1_math", "tokenize.chat_template", True),
    ("model=qwen2_5_32b", "model.rms_norm_eps", 1e-6),
    ("model=qwen2_5_32b model.variant=base", "model.rms_norm_eps", 1e-5),
    ("engine=mindrlhf train.ref_model_sync_steps=50", "train.ref_model_mixup_alpha", 1.0),
    ("engine=mindrlhf_one_stage train.ref_model_sync_steps=50", "train.ref_model_mixup_alpha", 1.0),
    ("train.ref_model_sync_steps=50", "train.ref_model_mixup_alpha", 0.6),
    ("cards=1", "layout.train.model_parallel", 1),
    ("cards=3", "layout.train.data_parallel", 3),
    ("cards=4", "layout.train.data_parallel", 2),
    ("cards=4 layout.train.model_parallel=1", "layout.train.data_parallel", 4),
    ("experiment=mindrlhf_one_stage_7b cards=16", "layout.train.data_parallel", 2),
    ("layout.train.model_parallel=1", "layout.generate.data_parallel", 1),
    ("layout.train.data_parallel=2", "layout.generate.data_parallel", 4),
    ("layout.generate.model_parallel=2", "layout.generate.data_parallel", 1),
    ("experiment=mindrlhf_deepseek_v3", "layout.reference.data_parallel", 4),
    ("layout=dp2_mp4_pp2_cp3_ep5", "layout.train.context_parallel", 3),
    ("layout=dp2_mp4_pp2_cp3_ep5", "layout.train.expert_parallel", 5),
    ("experiment=mindrlhf_7b", "layout.train.data_parallel", 1),
    ("experiment=mindrlhf_7b layout=dp8_mp4_pp1", "layout.train.data_parallel", 8),
    ("experiment=mindrlhf_7b layout=dp8_mp4_pp1", "layout.train.recompute", True),
    ("experiment=mindrlhf_7b rollout.max_tokens=128 engine.max_model_len=640", "engine.max_num_seqs", 640),
]
"""Overrides, a key that they do not set, and its value."""


@pytest.mark.parametrize(("typed", "key", "value"), CASES)
def test_a_default_follows_from_further_keys(typed, key, value):
    assert functools.reduce(dict.__getitem__, key.split("."), unchecked(typed.split()).plain()) == value


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


@pytest.mark.parametrize(
    "wrong",
    [
        ("layout.generate.model_parallel=x", "train.keep_best=3", "model.num_attention_heads=many"),
        ("layout.train.pipeline_stage=null", "layout.train.data_parallel=null"),
        ("layout.train.pipeline_stage=0", "model.num_key_value_heads=0"),
    ],
)
def test_values_of_a_wrong_type_hide_no_other_problem(wrong):
    """Nulls that follow from a wrong value are no problems of their own."""
    with pytest.raises(ConfigError) as raised:
        unchecked(["layout=dp1_mp1_pp1", *wrong])
    assert sorted(problem.path for problem in raised.value.problems) == sorted(
        override.partition("=")[0] for override in wrong
    )


CARDS = "dp1_mp1_pp1_cp1"
DEGREES = {
    "dp": "data_parallel", "mp": "model_parallel", "pp": "pipeline_stage", "cp": "context_parallel",
}  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "paths"),
    [
        (["seed=x", "train.steps=0", "model.hidden_size=none"], {"seed", "train.steps", "model.hidden_size"}),
        *((["layout=" + CARDS.replace(f"{short}1", f"{short}0"), *engine], {f"layout.train.{degree}"})
          for short, degree in DEGREES.items() for engine in ([], ["engine=mindrlhf"])),
        (["layout=dp1_mp999999999999_pp1"], {"layout.train.model_parallel", "train.prompts_per_step"}),
    ],
)  # fmt: skip
def test_all_problems_are_reported_at_once(overrides, paths):
    with pytest.raises(ConfigError) as refused:
        load(overrides)
    found = {problem.path for problem in refused.value.problems}
    assert paths <= found and all(path.startswith("layout.") for path in found - paths)


def test_checkouts_have_absolute_paths(tmp_path, monkeypatch):
    """Programs run in their work directories."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mindformers").mkdir()
    config = load(["engine=mindrlhf", "engine.sft=mindformers", "mindformers.home=mindformers"])
    assert config.mindformers.home == f"{tmp_path}/mindformers"
    config = load(["engine=mindrlhf", "engine.mindformers_home=./mindformers"])
    assert config.engine.mindformers_home == f"{tmp_path}/mindformers"


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


def test_a_path_is_sufficient_for_a_dataset(tmp_path):
    for split in ("train", "test"):
        rows = [json.dumps({"question": f"{i}?", "answer": f"#### {i}"}) for i in range(40)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    for path in (tmp_path, tmp_path / "train.jsonl"):
        dataset = load([f"dataset.path={path}"]).dataset
        assert (dataset.source, dataset.name, dataset.arith) == ("local", "local", None)
        assert (dataset.train_rows, dataset.test_rows) == (None, None)
    some = ["dataset.train_rows=35", "sft.batch_size=8"]
    assert load([f"dataset.path={tmp_path}", *some]).dataset.train_rows == 35


def test_files_at_a_hub_or_url_are_the_dataset():
    files = "dataset.files={train: {name: %s, sha256: null}, test: null}"
    hub = load(["dataset.hub={id: me/mine, revision: v1}", files % "x.jsonl"]).dataset
    assert (hub.source, hub.name) == ("modelscope", "custom")
    assert load([files % "'https://example.org/x.jsonl'"]).dataset.source == "url"


SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALING["original_max_position_embeddings"] = 32


def model_path(root, **changes):
    model = make_model(vocab_size=512, max_position_embeddings=4096, **changes)
    write_config(model, {"bos": None, "eos": [1], "pad": 0}, root)
    return f"model.path={root}"


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 3},
        {"family": "qwen3", "head_dim": 24, "tie_word_embeddings": True},
        {"family": "llama3", "intermediate_size": 96},
    ],
)
def test_family_and_shape_come_from_config_json(tmp_path, changes):
    override, model = model_path(tmp_path, **changes), make_model(**changes)
    config = load([override, "model.torch_dtype=float32"]).model
    for key in ("family", "num_hidden_layers", "head_size", "intermediate_size", "tie_word_embeddings"):
        assert getattr(config, key) == getattr(model, key)
    assert (config.source, config.torch_dtype, config.max_position_embeddings) == ("local", "float32", 4096)
    assert config.name == config.family


def test_as_transformers_5_writes_it(tmp_path):
    override = model_path(tmp_path, family="llama3")
    config = json.loads((tmp_path / "config.json").read_text())
    config["dtype"] = config.pop("torch_dtype")
    config["rope_parameters"] = {"rope_type": "llama3", "rope_theta": config.pop("rope_theta"), **SCALING}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load([override]).model
    assert model.rope_scaling is not None and model.rope_scaling.factor == 8.0
    assert (model.rope_theta, model.torch_dtype) == (1e4, "bfloat16")


@pytest.mark.parametrize("value", ["s3://bucket/x", "sftp://host/x", "file:///x", "hdfs://x", "a/b://c"])
def test_a_url_is_no_store(value, tmp_path, cache, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in ("plan", "run", "runs", "gc", "sweep seed=1,2"):
        assert main([*command.split(), f"store={value}"]) == 2
        assert f"store={value}: " in capsys.readouterr().err
    monkeypatch.setenv("GRPOFLOW_STORE", value)
    assert main(["plan"]) == 2 and "remote=URL" in capsys.readouterr().err
    with pytest.raises(grpoflow.Error, match="remote=URL"):
        grpoflow.open()
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_store_is_refused_if_sqlite_cannot_open_files_in_it(is_linked, tmp_path, capsys):
    def directory(size):
        path = tmp_path
        while (rest := size - len(os.fsencode(path))) > 0:
            path /= "d" * (rest - 1 if rest <= 200 else 100)
        path.mkdir(parents=True, exist_ok=True)
        if not is_linked:
            return path
        link = tmp_path / f"link_{size}"
        link.symlink_to(path)
        return link

    longest = directory(MOST_STORE_BYTES)
    assert load([f"store={longest}"]).store == str(longest)
    file = longest / "tokenize" / f".building-{'0' * 16}+9" / "train.mindrecord.db"
    file.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("create table t(a)")
    assert main(["plan", f"store={directory(MOST_STORE_BYTES + 2)}"]) == 2
    assert "must be at most" in capsys.readouterr().err
    assert main(["plan", f"store={tmp_path / ('d' * 256)}"]) == 2
    assert "255" in capsys.readouterr().err


def test_a_model_whose_weights_no_source_has_asks_for_its_directory():
    with pytest.raises(ConfigError, match=r"model\.path: is required.*give model\.path=DIR"):
        load(["experiment=mindrlhf_deepseek_v3"])


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_file_is_no_store(below, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for command in ("plan", "runs"):
        assert main([command, f"store={tmp_path / 'file' / below}"]) == 2
        assert "must be a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("layout.train.recompute=some", "layout.train.recompute=some: must be true or false or a list"),
        ("layout.train.recompute=7", "layout.train.recompute=7: must be true or false or a list"),
        ("layout.train.recompute=[-1]", "layout.train.recompute[0]=-1: must be at least 0"),
        ("layout.train.recompute=[true]", "layout.train.recompute[0]=True: must be a whole number"),
        ("layout.train.select_recompute=some", "must be true or false or a list or a group of keys"),
        ("layout.train.select_recompute={a:b}", "select_recompute.a=b: must be true or false or a list"),
    ],
)
def test_a_value_of_several_forms_is_read_by_its_form(override, message):
    with pytest.raises(ConfigError) as refused:
        load(["engine=mindrlhf", "model=qwen2_5_7b", "model.path=/m", "layout=dp1_mp4_pp2", override])
    assert message in str(refused.value)
