"""The rendered files, for layouts of notes that people follow too: train dp1 mp4 pp2, generate dp2 mp4."""

import ast
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.load import load
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindrlhf.one_stage.config import WINDOWS
from stages.engines.mindrlhf.one_stage.files import finetune, hyper_parameters, predict
from stages.engines.mindrlhf.one_stage.stage import collect
from stages.engines.mindrlhf.one_stage.start import write_configs
from stages.engines.outside import dump
from stages.weights.ckpt import build_ckpt
from tests.pipeline.stage_digests import check
from tests.stages.engines.mindrlhf.one_stage.jobs import HOME, PLACES, SEVEN, job_of
from tests.stages.engines.rendered import POWERS, SIZES, layout

GOLDEN = HOME.parent / "mindrlhf_one_stage_golden"
AXES = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel")


def fields(version):
    """Of the stand-in's dataclass: written down apart from the code under test."""
    source = ast.parse((HOME / version / "mindrlhf/configs/grpo_configs.py").read_text())
    (cls,) = (node for node in source.body if isinstance(node, ast.ClassDef))
    return {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@pytest.mark.parametrize("version", WINDOWS)
def test_every_hyper_parameter_is_one_of_the_version_s(version):
    one_batch = "train.prompts_per_step=2"
    job = job_of(*SEVEN, f"engine.contract={version}", one_batch)
    assert hyper_parameters(job).keys() <= fields(version)


@st.composite
def runs(draw):
    """Every layout of 2 to 64 cards that mindformers accepts of a Qwen2.5, and a step that fills it."""
    size = draw(st.sampled_from(sorted(SIZES)))
    layers, heads, kv_heads, tied = SIZES[size]
    mp = draw(st.sampled_from([n for n in POWERS if heads % n == 0 and kv_heads % n == 0]))
    pp = draw(st.integers(1, min(layers, 64 // mp)))
    cp = draw(st.sampled_from([n for n in POWERS if n * mp * pp <= 64]))
    dp = draw(st.integers(1 if mp * pp * cp > 1 else 2, 64 // (mp * pp * cp)))
    version = draw(st.sampled_from(WINDOWS))
    return {
        "size": size, "dp": dp, "mp": mp, "pp": pp, "cp": cp, "version": version,
        "whole": (tied and cp > 1) or draw(st.booleans()),  # MindSpore wants it so
        "micro": draw(st.sampled_from([1, 2, 4])),
        # generation's data_parallel is cards / model_parallel; before 2d0e84d a step is one batch
        "prompts": dp * pp * cp * (draw(st.integers(1, 3)) if version == "2d0e84d" else 1),
        **{key: draw(st.booleans()) for key in ("use_seq_parallel", "recompute")},
    }  # fmt: skip


@given(runs())
def test_every_size_and_layout(run):
    dp, mp, pp, cp, version = (run[key] for key in ("dp", "mp", "pp", "cp", "version"))
    layers, heads, kv_heads, tied = SIZES[run["size"]]
    job = job_of(
        f"model=qwen2_5_{run['size']}",
        layout(run),
        f"layout.train.vocab_emb_dp={run['whole']}",
        f"layout.train.micro_batch_num={pp * run['micro']}",
        *[f"layout.train.{key}={run[key]}" for key in ("use_seq_parallel", "recompute")],
        f"engine.contract={version}",
        f"train.prompts_per_step={run['prompts']}",
        "rollout.num_generations=8",
    )
    train, infer = (yaml.safe_load(dump(values)) for values in (finetune(job), predict(job)))
    for values in (train, infer):
        degrees, model = values["parallel_config"], values["model"]["model_config"]
        assert math.prod(degrees[key] for key in AXES) == dp * mp * pp * cp
        cuts = degrees["context_parallel"] * (degrees["model_parallel"] if degrees["use_seq_parallel"] else 1)
        assert model["seq_length"] % cuts == 0
        assert heads % degrees["model_parallel"] == kv_heads % degrees["model_parallel"] == 0
        assert (model["num_layers"], model["tie_word_embeddings"]) == (layers, tied)
        assert model["max_decode_length"] == job.rollout.max_tokens
        assert model["pad_token_id"] == 151643
    trained = train["parallel_config"]
    assert [trained[key] for key in AXES] == [dp, mp, pp, cp]
    assert trained["micro_batch_num"] >= pp and trained["vocab_emb_dp"] is run["whole"]
    recomputed = train["recompute_config"]["recompute"]
    assert (sum(recomputed) == layers if pp > 1 else recomputed) if run["recompute"] else not recomputed
    assert infer["parallel_config"]["pipeline_stage"] == infer["parallel_config"]["context_parallel"] == 1
    length = infer["model"]["model_config"]["seq_length"]
    assert length == train["model"]["model_config"]["seq_length"]
    # utils/configs.py, combine_grpo_config: what is left for the prompt
    assert length - infer["model"]["model_config"]["max_decode_length"] >= job.tokenize.max_prompt_length
    assert hyper_parameters(job)["opt_offload"] is False  # adam.py:161
    check_updates(hyper_parameters(job), trained, infer["parallel_config"], version)


def check_updates(values, train, infer, version):
    """Samples of a step fill whole updates; counted from the files alone."""
    batches = values["num_rollouts"] if version == "2d0e84d" else 1
    samples = batches * values["chunk_size"] * infer["data_parallel"] * values["num_generations"]
    micro = train["micro_batch_num"] if train["pipeline_stage"] > 1 else 1
    update = values["batch_size"] * train["data_parallel"] * micro
    assert samples >= update and samples % (update * values["sink_size"]) == 0
    assert values["end_lr"] < values["start_lr"]


def test_files_that_people_use_stay_as_they_are(tmp_path):
    job, places = job_of(*SEVEN), PLACES.__class__(tmp_path, PLACES.dataset, PLACES.tokenizer, PLACES.weights)
    write_configs(job, places)
    for golden in sorted(GOLDEN.iterdir()):
        text = (places.configs / golden.name).read_text()
        assert text == golden.read_text(), f"{golden} differs; is the change meant?"
    assert len(list(GOLDEN.iterdir())) == 3


def test_what_a_run_leaves_comes_home_and_nothing_changes_without_its_version(tmp_path):
    job, output, work = job_of(*SEVEN), tmp_path / "output", tmp_path / "work"
    config = load(["engine=mindrlhf_one_stage", "model.path=/models/qwen", *SEVEN]).plain()
    (work / "configs").mkdir(parents=True)
    output.mkdir()
    (work / "metrics.jsonl").write_text('{"step": 1, "time_s": 1.0, "reward": 0.5}\n')
    for rank in range(job.layout.train.cards):
        folder = work / "checkpoints" / "train" / f"rank_{rank}"
        folder.mkdir(parents=True)
        ((_, frame),), _, size = build_ckpt([("model.norm_out.weight", "F32", (2,))])
        (folder / f"policy_model_epoch_{job.engine.epochs}.ckpt").write_bytes(frame.ljust(size, b"\0"))
    context = Context(
        "grpo", config, dict.fromkeys(("fetch", "tokenize"), tmp_path), output, work, tmp_path / "p"
    )
    collect(context)
    assert len(list(output.glob("train/rank_*/*.ckpt"))) == 8
    check("mindrlhf_one_stage/collect", output, tmp_path)
    (folder / f"policy_model_epoch_{job.engine.epochs}.ckpt").unlink()
    with pytest.raises(InputError, match="exit code 0, but wrote no checkpoint"):
        collect(context)
