"""Before and after a run: what it starts from, what it goes on from, what its checkpoint becomes."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from pipeline.config.load import load
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindformers.stage import collect, prepare
from tests.pipeline.stage_digests import check
from tests.stages.weights.checkpoints import make_model, read_bits, write_hf

sys.path.append(str(Path(__file__).parents[3] / "data" / "mindrlhf_standin"))
from standin import shares  # how a rank's slices are cut, written down apart from the code under test

STEPS = 6  # 24 examples, 8 an update, twice
MODEL = make_model(torch_dtype="float32", param_init_type="float32")


@pytest.fixture(params=["dp1_mp1_pp1", "dp1_mp2_pp2", "dp2_mp2_pp1"])
def context(tmp_path, request):
    changes = {key: value for key, value in dataclasses.asdict(MODEL).items() if isinstance(value, int)}
    config = load(
        [
            "engine=mindrlhf", "engine.sft=mindformers", "mindformers.batch_size=8", "tokenize.sft_length=16",
            "tokenize.max_prompt_length=8", "rollout.max_tokens=8", f"layout={request.param}",
            f"model.path={tmp_path / 'hf'}", "model=qwen2_5_0_5b",
            "model.torch_dtype=float32", "model.pad_token_id=0", "model.bos_token_id=0",
            "model.eos_token_id=[1]", *[f"model.{key}={value}" for key, value in changes.items()],
            "model.max_position_embeddings=2048",
        ]
    ).plain()  # fmt: skip
    write_hf(tmp_path / "hf", MODEL, shards=2)
    for name in ("work", "output", "records", "logs"):
        (tmp_path / name).mkdir()
    count_examples(tmp_path / "records", 24)
    inputs = {"fetch": tmp_path / "hf", "tokenize": tmp_path / "records"}
    return Context("sft", config, inputs, tmp_path / "output", tmp_path / "work", tmp_path / "progress")


def count_examples(records, count):
    (records / "result.json").write_text(json.dumps({"files": {"sft": {"records": count}}}))


def cards(context):
    degrees = context.config["layout"]["train"]
    return degrees["data_parallel"] * degrees["model_parallel"] * degrees["pipeline_stage"]


def checkpoint(context, step, ranks=None):
    """Write a checkpoint like mindformers after a step: weights plus the step, Adam moments, counters."""
    start = load_complete(context.work / "weights")
    for rank in ranks or range(cards(context)):
        held = shares(start, MODEL.num_hidden_layers, context.config["layout"]["train"], rank)
        tensors = {name: value + np.float32(step) for name, value in held.items()}
        tensors |= {f"adam_{kind}.{name}": value for kind in "mv" for name, value in held.items()}
        tensors |= {name: np.array([step]) for name in ("epoch_num", "global_step", "loss_scale")}
        folder = context.work / "output" / "checkpoint" / f"rank_{rank}"
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / f"sft_rank_{rank}-{step}_1.safetensors")
        (folder / "meta.json").write_text("{")


def load_complete(directory):
    files = [load_file(file) for file in directory.glob("*.safetensors")]
    return {name: value for tensors in files for name, value in tensors.items()}


def rendered(context):
    values: dict = yaml.safe_load((context.work / "finetune.yaml").read_text())
    return values


def resumed(context):
    prepare(context)
    return json.loads((context.work / "start.json").read_text())["resumed"]


def test_it_resumes_from_the_newest_checkpoint_of_all_ranks(context):
    prepare(context)
    checkpoint(context, 2)
    checkpoint(context, 4)
    rank = cards(context) - 1
    truncated = context.work / f"output/checkpoint/rank_{rank}/sft_rank_{rank}-4_1.safetensors"
    truncated.write_bytes(truncated.read_bytes()[:-8])
    assert resumed(context) == [2, 1]
    values = rendered(context)
    assert (values["resume_training"], values["auto_trans_ckpt"]) == (True, False)
    path, moved = Path(values["load_checkpoint"]), context.work / "resume" / "checkpoint"
    if cards(context) == 1:  # a file in a directory that is no rank's
        assert path.name == "sft_rank_0-2_1.safetensors" and path.parent.name == "resume"
        assert path.resolve() == moved / "rank_0" / path.name
    else:
        assert path == moved
    for rank in range(cards(context)):
        name, folder = f"sft_rank_{rank}-2_1.safetensors", moved / f"rank_{rank}"
        meta = json.loads((folder / "meta.json").read_text())
        assert meta == {"last_epoch": 2, "last_step": 1, "last_ckpt_file": name}
        assert [file.name for file in folder.glob("*.safetensors")] == [name]
    assert not (context.work / "output" / "checkpoint").exists()  # MindSpore would rename its own files


def test_a_second_kill_resumes_from_the_same_checkpoint_until_there_is_a_new_one(context):
    prepare(context)
    checkpoint(context, 2)
    prepare(context)
    checkpoint(context, 4, range(1))
    (context.work / "output/checkpoint/rank_0/sft_rank_0-4_1.safetensors").write_bytes(b"cut off")
    for _ in range(2):
        assert resumed(context) == [2, 1]
        assert not (context.work / "output" / "checkpoint").exists()
    checkpoint(context, 5)
    checkpoint(context, STEPS)  # killed after the last one: the last steps are trained again
    assert resumed(context) == [5, 1]


def test_the_result_has_the_fetched_models_files_and_changes_only_with_its_version(context):
    prepare(context)
    checkpoint(context, 4)
    checkpoint(context, STEPS)
    start, logs = context.work / "start.json", context.work.parent / "logs"
    (logs / "worker_0.log").write_text("INFO - .........Training Over!.............\n")
    start.write_text(json.dumps({**json.loads(start.read_text()), "logs": str(logs)}))
    (context.work / "metrics.jsonl").write_text('{"step": 6, "time_s": 1.0, "loss": 0.5}\n')
    collect(context)
    fetched, made = context.inputs["fetch"], context.output
    for file in fetched.glob("*.safetensors"):
        old, new = read_bits(file), read_bits(made / file.name)
        assert old.keys() == new.keys()
        for name, bits in old.items():
            expected = bits.view(np.float32) + np.float32(STEPS)
            assert (new[name].view(np.float32) == expected).all(), name
    for name in ("config.json", "tokenizer.json", "model.safetensors.index.json"):
        assert (made / name).read_text() == (fetched / name).read_text()
    assert not [path for path in made.iterdir() if path.is_dir()]  # copy_model expects none
    assert json.loads((made / "result.json").read_text()) == {
        "steps": 6, "loss": 0.5, "stopped": "epochs", "resumed_from": None, "checkpoint": "6_1"
    }  # fmt: skip
    if cards(context) == 1:
        check("mindformers/collect", made, made.parent)


def test_fewer_examples_than_an_update_needs_are_refused(context):
    count_examples(context.inputs["tokenize"], 7)
    with pytest.raises(InputError, match=r"mindformers.batch_size=8: must be at most the 7 examples"):
        prepare(context)
