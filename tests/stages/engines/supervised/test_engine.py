"""engine=supervised: examples and training by mindformers; the program itself runs in tests/upstream."""

import json

import pytest
import yaml

from pipeline import cli
from pipeline.config.load import load
from stages.base.errors import ConfigError
from stages.engines.mindformers.stage import render
from stages.tokenize.records import read_columns

RECIPE = ("experiment=sft_qwen2_5_0_5b", "model.path=/models/qwen")
ALPACA = [
    {"instruction": "Name a colour.", "input": "", "output": "Red"},
    {"instruction": "Add.", "input": "1 and 2", "output": "3"},
]


def finetune(tmp_path, *overrides):
    config = load([*RECIPE, *overrides]).plain()
    files = render(config, {"tokenize": tmp_path, "fetch": tmp_path}, tmp_path / "run").files
    return yaml.safe_load(files["finetune.yaml"])


def test_the_recipe_says_what_mindformers_own_file_says(tmp_path):
    made = finetune(tmp_path)
    assert made["runner_config"] | {"sink_mode": True} == {
        "epochs": 2, "batch_size": 1, "sink_mode": True, "sink_size": 1, "gradient_accumulation_steps": 1
    }  # fmt: skip
    assert made["lr_schedule"]["warmup_ratio"] == 0 and "warmup_steps" not in made["lr_schedule"]
    assert made["lr_schedule"]["lr_end"] == pytest.approx(1e-8)
    assert made["parallel_config"]["gradient_aggregation_group"] == 4
    assert made["model"]["model_config"]["seq_length"] == 4096 and not made["use_parallel"]
    more = finetune(tmp_path, "mindformers.batch_size=8")  # mindformers accumulates nothing on one card
    assert more["runner_config"]["batch_size"] == more["train_dataset"]["batch_size"] == 8
    assert more["runner_config"]["gradient_accumulation_steps"] == 1
    longer = finetune(tmp_path, "tokenize.sft_length=8192")
    assert longer["model"]["model_config"]["seq_length"] == 8192


def test_blocks_of_text_have_no_labels(tmp_path):
    made = finetune(tmp_path, "tokenize=wiki", "dataset.path=/data/wiki.train.tokens")
    assert made["train_dataset"]["input_columns"] == ["input_ids"]
    assert finetune(tmp_path)["train_dataset"]["input_columns"] == ["input_ids", "labels"]


def test_plan_needs_no_engine_of_grpo(tmp_path, capsys):
    source = tmp_path / "alpaca.json"
    source.write_text(json.dumps(ALPACA))
    line = (
        "plan", "--json", RECIPE[0], "model=tiny", "tokenize.sft_length=256", f"dataset.path={source}",
        f"store={tmp_path}/store",
    )  # fmt: skip
    assert cli.main(line) == 10
    shown = json.loads(capsys.readouterr().out)
    states = {stage["stage"]: stage["state"] for stage in shown["stages"]}
    assert {name for name, state in states.items() if state != "SKIPPED"} == {
        "fetch", "fetch_dataset", "tokenize", "sft", "report"
    }  # fmt: skip
    assert cli.main([*line, "--until", "sft"]) == 10
    capsys.readouterr()
    assert shown["warnings"] == []


def test_stages_before_training_write_one_file_of_examples(tmp_path):
    source, store = tmp_path / "alpaca.json", tmp_path / "store"
    source.write_text(json.dumps([*ALPACA, {"instruction": "Empty?", "input": "", "output": ""}]))
    run = (
        RECIPE[0], "model=tiny", "tokenize.sft_length=256", f"dataset.path={source}",
        "dataset.max_bad_share=0.4", f"store={store}",
    )  # fmt: skip
    assert cli.main(["run", "--until", "tokenize", *run]) == 0
    (artifact,) = store.glob("tokenize/*")
    assert {file.name for file in artifact.glob("*.mindrecord")} == {"sft.mindrecord"}
    records = read_columns(artifact / "sft.mindrecord", ["input_ids", "labels"])
    assert records["input_ids"].shape == records["labels"].shape == (2, 257)
    card = json.loads((artifact / "result.json").read_text())["files"]["sft"]
    assert card["dropped"] == {"'output' is empty": 1}


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("engine.sft", [*RECIPE, "engine.sft=off"]),
        ("tokenize.shards", [*RECIPE, "tokenize=wiki", "tokenize.shards=2"]),
        ("dataset.solution", [*RECIPE, "tokenize=gsm8k"]),
        ("tokenize.kind", ["tokenize=alpaca"]),
        ("dataset.solution", ["dataset=alpaca"]),
    ],
)
def test_examples_and_questions_are_not_mixed(key, overrides):
    with pytest.raises(ConfigError) as refused:
        load(overrides)
    assert key in [problem.path for problem in refused.value.problems]
