"""collect: what a finished run's files become, without a run."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.config.load import load
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindrlhf import stage
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.stage import check_truths, collect, copy_inputs, count_prompts
from stages.weights.sources import open_ranks
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from tests.pipeline.stage_digests import check
from tests.stages.engines.mindrlhf.jobs import job_of

OVERRIDES = ["model=qwen2_5_0_5b", "model.num_hidden_layers=2", "layout=dp1_mp1_pp2"]


PREFIX = "grpo_model_train.policy_model.model."


def context_of(tmp_path, *overrides):
    config = load(["model.path=/models/qwen", *(overrides or ["engine=mindrlhf", *OVERRIDES])]).plain()
    for name in ("work", "output", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "logs" / "worker_0.log").write_text("INFO - run grpo train end\n")
    plan = {"earlier": {}, "logs": str(tmp_path / "logs")}
    (tmp_path / "work" / "start.json").write_text(json.dumps(plan))
    (tmp_path / "work" / "configs").mkdir()
    (tmp_path / "work" / "metrics.jsonl").write_text('{"step": 1, "time_s": 1.0, "reward": 0.5}\n')
    for rank in (0, 1):
        folder = tmp_path / "work" / "checkpoints" / "train" / f"rank_{rank}"
        folder.mkdir(parents=True)
        name = "grpo_model_train.policy_model.model.model.norm_out.weight"
        tensors = {"epoch_num": np.array(1), "step_num": np.array(1)}
        if rank == 1:
            tensors[name] = np.full(896, 2.0, np.float32)
        save_file(tensors, folder / f"policy_model_rank_{rank}-1_1.safetensors")
    inputs = {"fetch": tmp_path, "tokenize": tmp_path}
    (tmp_path / "work" / "checkpoints" / "resumed.json").write_text("[0, 6]")
    return Context("grpo", config, inputs, tmp_path / "output", tmp_path / "work", tmp_path / "progress")


def test_the_strategy_files_of_mindrlhf_are_imported(tmp_path):
    context, job = context_of(tmp_path), job_of(*OVERRIDES)
    write_strategy(job.model, job.layout.train, context.work / "strategy", role="train")
    collect(context)
    strategy = read_strategy(context.output / "train_strategy")
    files = [file.read_bytes() for file in (context.output / "train_strategy").rglob("*.ckpt")]
    assert files and all(b"grpo_model_train." in content for content in files)
    tensors = open_ranks(context.output / "train", strategy)
    assert tensors["model.norm_out.weight"].shape == (896,)
    result = json.loads((context.output / "result.json").read_text())
    assert (result["steps"], result["final_reward"], result["checkpoint"]) == (1, 0.5, "1_1")
    assert result["resumed_from"] == [0, 6]
    assert "KL and clip share" in result["not_logged"]


def test_without_strategy_files_the_layouts_are_written(tmp_path):
    context = context_of(tmp_path)
    collect(context)
    strategy = read_strategy(context.output / "train_strategy")
    assert strategy.tensors.keys() >= {"model.norm_out.weight", "model.layers.1.attention.wq.weight"}
    assert open_ranks(context.output / "train", strategy)["model.norm_out.weight"].shape == (896,)
    check("mindrlhf/collect", context.output, tmp_path)


def test_a_model_with_experts_is_trained_from_converted_weights_and_generates_from_fetched_ones(tmp_path):
    degrees = {"data_parallel": 1, "model_parallel": 2, "pipeline_stage": 1, "expert_parallel": 1}
    layout = [
        f"layout.{role}.{key}={value}"
        for role in ("train", "generate", "reference")
        for key, value in {**degrees, "micro_batch_num": 1, "offset": []}.items()
    ]
    context = context_of(tmp_path, "experiment=mindrlhf_deepseek_v3", *layout)
    for name, directory in (("fetch", "hf"), ("weights", "ms")):
        context.inputs[name] = tmp_path / directory
        context.inputs[name].mkdir()
        save_file({"lm_head.weight": np.ones(4, np.float32)}, context.inputs[name] / "model.safetensors")
    paths = copy_inputs(Job.from_config(context.config), context)
    assert (paths.actor.name, paths.reference.name, paths.generate.name) == ("ms", "ms", "hf")
    assert all((path / "model.safetensors").is_symlink() for path in (paths.actor, paths.generate))
    routed = "model.layers.3.feed_forward.routed_experts"
    saved = {
        f"{routed}.ffn.w2.weight": np.zeros((128, 8, 4), np.float32),  # the parallel optimizer's half
        f"{routed}.router.router.topk_bias": np.zeros(256, np.float32),
        f"{routed}.router.router.expert_load": np.ones(256, np.float32),  # counts, which are no weights
    }
    for rank in (0, 1):
        (file,) = (context.work / f"checkpoints/train/rank_{rank}").iterdir()
        save_file({f"{PREFIX}{name}": value for name, value in saved.items()}, file)
    collect(context)
    tensors = open_ranks(context.output / "train", read_strategy(context.output / "train_strategy"))
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        f"{routed}.ffn.w2.weight": (256, 8, 4),
        f"{routed}.router.router.topk_bias": (256,),
    }


@pytest.mark.parametrize(("rows", "fits"), [(32, True), (31, False)])
def test_too_few_prompts_for_one_step_are_refused(tmp_path, rows, fits):
    (tmp_path / "result.json").write_text(json.dumps({"files": {"train": {"records": rows}}}))
    job = job_of(*OVERRIDES, "train.prompts_per_step=32")
    if fits:
        assert count_prompts(job, tmp_path) == 32
        return
    with pytest.raises(InputError, match="must be at most the 31 training prompts"):
        count_prompts(job, tmp_path)


@pytest.mark.parametrize(("texts", "number"), [(["4", "-1,200"], 0), (["4", "x + y"], 1)])
def test_ground_truths_that_end_mindrlhf_are_refused(tmp_path, monkeypatch, texts, number):
    class Tokenizer:
        def decode_batch(self, rows):
            return [texts[index] for (index,) in rows]

    job = job_of(*OVERRIDES)
    ids = np.array([[0, job.model.token_ids.pad], [1, job.model.token_ids.pad]])
    monkeypatch.setattr(stage, "read_columns", lambda file, names: {"pretrain_ids": ids})
    monkeypatch.setattr(stage, "load", lambda directory: Tokenizer())
    if not number:
        check_truths(job, tmp_path, tmp_path)
        return
    with pytest.raises(InputError, match=r"reward.functions=qwen_accuracy: 1 of 2 ground truths.*'x \+ y'"):
        check_truths(job, tmp_path, tmp_path)
    check_truths(job_of(*OVERRIDES, "reward.functions=[format]"), tmp_path, tmp_path)
