"""The rendered files, for layouts of notes that people follow too: train dp1 mp4 pp2, generate dp2 mp4."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.mindrlhf.start import dump
from stages.mindrlhf_one_stage.config import WINDOWS
from stages.mindrlhf_one_stage.files import finetune, hyper_parameters, predict
from stages.mindrlhf_one_stage.start import write_configs
from tests.stages.mindrlhf.test_rendering import POWERS, SIZES
from tests.stages.mindrlhf_one_stage.jobs import HOME, PLACES, SEVEN, job_of

GOLDEN = HOME.parent / "mindrlhf_one_stage_golden"


def fields(version: str) -> set[str]:
    """Of the stand-in's dataclass: written down apart from the code under test."""
    source = ast.parse((HOME / version / "mindrlhf/configs/grpo_configs.py").read_text())
    (cls,) = (node for node in source.body if isinstance(node, ast.ClassDef))
    return {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@pytest.mark.parametrize("version", WINDOWS)
def test_every_hyper_parameter_is_one_of_the_version_s(version: str) -> None:
    one_batch = "train.prompts_per_step=2"
    job = job_of(*SEVEN, f"engine.contract={version}", one_batch)
    assert hyper_parameters(job).keys() <= fields(version)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_size_and_layout(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from(sorted(SIZES)))
    layers, heads, kv_heads, tied = SIZES[size]
    mp = data.draw(st.sampled_from([n for n in POWERS if heads % n == 0 and kv_heads % n == 0]))
    pp = data.draw(st.sampled_from([n for n in POWERS if n <= min(layers, 64 // mp)]))
    dp = data.draw(st.sampled_from([n for n in POWERS if 2 <= n * pp * mp <= 64]))
    version = data.draw(st.sampled_from(WINDOWS))
    prompts = dp * pp if version != "2d0e84d" else 128  # generation's data_parallel is cards / model_parallel
    job = job_of(
        f"model=qwen2_5_{size}",
        f"layout=dp{dp}_mp{mp}_pp{pp}",
        f"engine.contract={version}",
        f"train.prompts_per_step={prompts}",
        "rollout.num_generations=64",
    )
    train, infer = (yaml.safe_load(dump(values)) for values in (finetune(job), predict(job)))
    for values in (train, infer):
        degrees, model = values["parallel_config"], values["model"]["model_config"]
        product = degrees["data_parallel"] * degrees["model_parallel"] * degrees["pipeline_stage"]
        assert product == dp * mp * pp
        assert heads % degrees["model_parallel"] == kv_heads % degrees["model_parallel"] == 0
        assert (model["num_layers"], model["tie_word_embeddings"]) == (layers, tied)
        assert model["max_decode_length"] == job.rollout.max_tokens
        assert model["pad_token_id"] == 151643
    assert infer["parallel_config"]["pipeline_stage"] == 1
    length = infer["model"]["model_config"]["seq_length"]
    assert length == train["model"]["model_config"]["seq_length"]
    # utils/configs.py, combine_grpo_config: what is left for the prompt
    assert length - infer["model"]["model_config"]["max_decode_length"] >= job.tokenize.max_prompt_length
    check_updates(hyper_parameters(job), train["parallel_config"], infer["parallel_config"], version)


def check_updates(values: dict[str, Any], train: dict[str, int], infer: dict[str, int], version: str) -> None:
    """Samples of a step fill whole updates; counted from the files alone."""
    batches = values["num_rollouts"] if version == "2d0e84d" else 1
    samples = batches * values["chunk_size"] * infer["data_parallel"] * values["num_generations"]
    micro = train["micro_batch_num"] if train["pipeline_stage"] > 1 else 1
    update = values["batch_size"] * train["data_parallel"] * micro
    assert samples >= update and samples % (update * values["sink_size"]) == 0
    assert values["end_lr"] < values["start_lr"]


def test_files_that_people_use_stay_as_they_are(tmp_path: Any) -> None:
    job, places = job_of(*SEVEN), PLACES.__class__(tmp_path, PLACES.dataset, PLACES.tokenizer, PLACES.weights)
    write_configs(job, places)
    for golden in sorted(GOLDEN.iterdir()):
        text = (places.configs / golden.name).read_text()
        assert text == golden.read_text(), f"{golden} differs; is the change meant?"
    assert len(list(GOLDEN.iterdir())) == 3


def test_generation_of_the_golden_is_dp2_mp4() -> None:
    degrees = yaml.safe_load((GOLDEN / "predict.yaml").read_text())["parallel_config"]
    assert (degrees["data_parallel"], degrees["model_parallel"], degrees["pipeline_stage"]) == (2, 4, 1)
