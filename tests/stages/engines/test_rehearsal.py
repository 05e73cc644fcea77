"""A rehearsal's recipe is the run's, but for sizes; its proofs come from the files of a run."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from pipeline.config.load import load
from stages.base.keys import leaves
from stages.engines.mindformers import job as mindformers
from stages.engines.mindformers import rules as mindformers_rules
from stages.engines.mindformers.files import finetune
from stages.engines.mindformers.rehearsal.shim import shrink as shrink_mindformers
from stages.engines.mindrlhf import rules
from stages.engines.mindrlhf.files import CONFIG, all_configs
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.rehearsal import proofs, shrink
from stages.engines.mindrlhf.rehearsal.answers import best_answer
from stages.engines.rehearsal import resumed
from stages.fetch.builtin import write_model
from stages.models.families import parameter_shapes
from stages.rewards.config import RewardConfig
from stages.weights.convert import convert_directory
from stages.weights.names import name_map
from stages.weights.tensors import load as load_weights
from tests.stages.weights.checkpoints import make_model
from tests.stages.weights.test_families import MODELS

ROOT = Path("/run")
PATHS = Paths(ROOT, ROOT / "data", ROOT / "hf", ROOT / "hf", ROOT / "hf", ROOT / "hf")
SFT_PATHS = mindformers.Paths(ROOT, ROOT / "sft.mindrecord", ROOT / "weights")
SMALL = (Path("/small"), Path("/script.json"))
SEVEN = ["model=qwen2_5_7b", "model.path=/hf", "dataset=gsm8k", "dataset.path=/data"]
RECIPES = {
    "7b": ["experiment=mindrlhf_7b", "dataset.path=/data", "model.path=/hf"],
    "tuned": [
        "engine=mindrlhf", *SEVEN[1:], "model=qwen2_5_1_5b", "layout=dp4_mp2_pp1",
        "train.beta=0.04", "rollout.temperature=0.7", "rollout.num_generations=16",
        "train.num_iterations=2", "train.ref_model_sync_steps=4", "train.ref_model_mixup_alpha=1.0",
        "engine.batch_size=2", "engine.pack_num=4", "engine.seq_length=8192", "train.prompts_per_step=64",
        "layout.train.recompute=true", "engine.load_ckpt_format=ms_safetensors", "seed=7",
        "engine.max_num_seqs=4096",
    ],
    "older": ["experiment=mindrlhf_7b", "dataset.path=/data", "model.path=/hf", "engine.contract=0cd087455"],
    "packed": [
        "engine=mindrlhf", *SEVEN, "engine.pack_num=16", "train.prompts_per_step=32",
        "engine.seq_length=16512",
    ],
}  # fmt: skip
SUPERVISED = [
    "engine=mindrlhf", "engine.sft=mindformers", *SEVEN, "layout=dp1_mp4_pp2", "layout.train.recompute=true",
    "mindformers.epochs=3",
]  # fmt: skip
DEGREES = ["data_parallel", "model_parallel", "pipeline_stage", "context_parallel", "micro_batch_num"]
RENDERED = {  # keys of grpo_config.yaml that may differ: sizes, and what follows from whole weights
    *(f"rl_config.{key}" for key in (
        "epochs", "seq_length", "num_generations", "num_rollouts", "save_ckpt_interval",
    )),
    *(f"generate_config.{key}" for key in (
        "max_model_len", "max_num_batched_tokens", "max_num_seqs", "max_prompt_length",
        "sampling_config.max_tokens", "sampling_config.min_tokens",
    )),
    *(f"{section}_config.{key}" for section in ("actor", "ref", "generate")
      for key in ("offset", *(f"parallel_config.{degree}" for degree in DEGREES))),
}  # fmt: skip
MODEL_SIZES = {
    "hidden_size", "num_layers", "num_heads", "n_kv_heads", "intermediate_size", "seq_length", "offset",
    "max_decode_length", "min_decode_length",
}  # fmt: skip
SFT_SIZES = {
    "runner_config.epochs", "runner_config.gradient_accumulation_steps",
    "parallel_config.model_parallel", "parallel_config.pipeline_stage", "parallel_config.micro_batch_num",
    "recompute_config.recompute",  # layers of each pipeline stage, or of all
    "use_parallel", "auto_trans_ckpt",  # one worker, which computes all examples of an update at once
    "runner_config.batch_size", "train_dataset.batch_size", "train_dataset_task.dataset_config.batch_size",
    "model.model_config.batch_size",
    *(f"model.model_config.{key}" for key in MODEL_SIZES),
}  # fmt: skip


def small_recipe(name, workers=1):
    return shrink.shrink(load(RECIPES[name]).plain(), workers, *SMALL)


def different(before, after):
    assert before.keys() >= after.keys()
    return {key for key in after if before[key] != after[key]}


def rendered(values, resume):
    files = all_configs(Job.from_config(values), PATHS, resume)
    shown = {file: content if file == CONFIG else content["model"] for file, content in files.items()}
    return {file: dict(leaves(content)) for file, content in shown.items()}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("resume", [False, True])
def test_only_rendered_sizes_of_mindrlhf_change(name, resume):
    original, small = (
        rendered(values, resume) for values in (load(RECIPES[name]).plain(), small_recipe(name))
    )
    for file, before in original.items():
        assert before.keys() == small[file].keys()
        changed = different(before, small[file])
        if file == CONFIG:
            assert changed and changed <= RENDERED
        else:
            assert {"hidden_size", "num_layers"} <= {key.rpartition(".")[2] for key in changed} <= MODEL_SIZES


def test_only_rendered_sizes_of_mindformers_change():
    plain, files = load(SUPERVISED).plain(), []
    for values in (plain, shrink_mindformers(plain, *SMALL)):
        job = mindformers.Job.from_config(values)
        assert list(mindformers_rules.problems(job)) == []
        files.append(dict(leaves(finetune(job, SFT_PATHS, resume=False))))
    changed = different(*files)
    assert "model.model_config.hidden_size" in changed and changed <= {*SFT_SIZES, "callbacks"}
    for before, after in zip(*(file["callbacks"] for file in files), strict=True):
        assert different(before, after) <= {"save_checkpoint_steps"}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_small_recipe_breaks_no_rule_and_fills_every_batch(name, workers):
    small = small_recipe(name, workers)
    job = Job.from_config(small)
    assert [str(problem) for problem in rules.problems(job)] == []
    assert job.rollout.num_generations >= 2  # else nothing to compare with
    assert small["dataset"]["train_rows"] == shrink.STEPS * small["train"]["prompts_per_step"]
    assert job.packs % (job.engine.ref_model_batch_size * workers) == 0
    small["rollout"]["max_tokens"] = 200  # longer answers
    assert list(rules.problems(Job.from_config(small))) == []


@pytest.mark.parametrize("contract", ["e8a8fc1", "0cd087455"])
@pytest.mark.parametrize(
    "layout", ["layout=dp1_mp4_pp2", "layout=dp4_mp2_pp1", "layout=dp2_mp8_pp2 model=qwen2_5_32b"]
)
@pytest.mark.parametrize("form", ["hf_safetensors", "ms_safetensors", "ckpt"])
def test_without_vllm_completions_come_from_two_replicas(form, layout, contract):
    recipe = [*RECIPES["7b"], "engine.use_vllm=0", f"engine.load_ckpt_format={form}"]
    plain = load([*recipe, f"engine.contract={contract}", *layout.split()]).plain()
    count = shrink.workers(Job.from_config(plain).engine)
    assert count == 2
    small = Job.from_config(shrink.shrink(plain, count, *SMALL))
    assert list(rules.problems(small)) == []
    assert 2**32 < shrink.worker_bytes(small) < 2**34


GOOD = {"reward_min": 0.0, "reward_max": 1.0, "loss": 0.5, "grad_norm": 0.1}
SILENT = {key: value for key, value in GOOD.items() if key != "grad_norm"}
"""A step of 0cd087455."""


def _grpo(directory, *steps, completion="a \\boxed{1}"):
    rows = [{"step": number, **step} for number, step in enumerate(steps, 1)]
    sample = {"prompt": "p", "completion": completion, "solution": "1", "reward": 0, "length": 3}
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "completions.jsonl").write_text(json.dumps({"step": 1, **sample}) + "\n")
    return directory


@pytest.mark.parametrize(
    ("first", "second", "loss", "norm"),
    [
        (GOOD, {**GOOD, "loss": float("nan")}, "failed", "proven"),
        (GOOD, {**GOOD, "grad_norm": 0.0}, "proven", "failed"),
        (GOOD, {**GOOD, "grad_norm": float("inf")}, "proven", "failed"),
        (SILENT, SILENT, "proven", "unproven"),
    ],
)
def test_every_step_needs_a_loss_and_a_gradient(tmp_path, first, second, loss, norm):
    listed = proofs.training_proofs(_grpo(tmp_path, first, second), 3, "")
    states = {proof.what: proof.state for proof in listed}
    assert (states["loss finite"], states["gradient norm above 0"]) == (loss, norm)


@pytest.mark.parametrize(
    ("start", "state"),
    [([0, 2], "proven"), ([0, 10], "proven"), ([1, 0], "proven"), ([0, 1], "failed"), (None, "failed")],
)
def test_it_must_resume_from_the_complete_checkpoint(tmp_path, start, state):
    (tmp_path / "result.json").write_text(json.dumps({"resumed_from": start, "steps": 3}))
    assert resumed(tmp_path, [0, 2]).state == state


TINY = make_model(
    hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, intermediate_size=16,
    vocab_size=32,
)  # fmt: skip
PREFIX = "grpo_model_train.policy_model."


@pytest.mark.parametrize("damage", ["none", "another value", "missing"])
def test_an_export_is_the_trained_weights_rounded_once(tmp_path, damage):
    """The export is torch's own rounding to bfloat16."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    random = torch.Generator().manual_seed(0)
    shapes, names = parameter_shapes(TINY), name_map(TINY)
    trained = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    exported = {names[name][0]: value.to(torch.bfloat16) for name, value in trained.items()}
    checkpoint = tmp_path / "policy_model_rank_0-1_3.safetensors"
    saved = {f"{PREFIX}model.{name}": value for name, value in trained.items()}
    save_torch({**saved, f"{PREFIX}kl_loss": torch.zeros(())}, checkpoint)
    for directory in ("start", "hf"):
        (tmp_path / directory).mkdir()
    save_torch(exported, tmp_path / "start" / "model.safetensors")
    if damage == "another value":
        exported["model.norm.weight"].add_(0.125)
    elif damage == "missing":
        del exported["model.norm.weight"]
    save_torch(exported, tmp_path / "hf" / "model.safetensors")
    result = proofs.export_proofs(checkpoint, tmp_path / "hf", tmp_path / "start", TINY)
    by_name = {proof.what: proof for proof in result}
    if damage == "none":
        assert {proof.state for proof in by_name.values()} == {"proven"}
    else:
        assert by_name["exported bit for bit"].state == "failed"
        assert "model.norm.weight" in by_name["exported bit for bit"].told


@pytest.mark.parametrize(
    "damaged",
    ["none", "model.layers.1.mlp.experts.3.up_proj.weight", "model.layers.2.self_attn.q_b_proj.weight"],
)
def test_an_export_of_a_model_with_experts_is_compared_tensor_by_tensor(tmp_path, damaged):
    model = make_model(**MODELS["deepseek_v3"], torch_dtype="float32")
    for directory, seed in (("start", 0), ("hf", 1)):
        (tmp_path / directory).mkdir()
        write_model(model, {"bos": None, "eos": [1], "pad": 0}, seed, tmp_path / directory)
    convert_directory(tmp_path / "hf", tmp_path / "complete", False, None)
    checkpoint = tmp_path / "policy_model_rank_0-1_3.safetensors"
    saved = {f"{PREFIX}model.{name}": value for name, value in load_weights(tmp_path / "complete").items()}
    save_file(saved, checkpoint)
    exported = load_weights(tmp_path / "hf")
    if damaged != "none":
        exported[damaged][[0, 1]] = exported[damaged][[1, 0]]
        save_file(exported, tmp_path / "hf/model.safetensors")
    result = proofs.export_proofs(checkpoint, tmp_path / "hf", tmp_path / "start", model)
    by_name = {proof.what: proof for proof in result}
    assert by_name["training changed the weights"].state == "proven"
    assert by_name["exported bit for bit"].state == ("proven" if damaged == "none" else "failed")
    assert damaged == "none" or damaged in by_name["exported bit for bit"].told


@pytest.mark.parametrize(
    ("function", "holds"), [("qwen_accuracy", "\\boxed{18}"), ("format", "<answer>18</answer>")]
)
def test_the_answer_has_the_form_with_the_highest_reward(function, holds):
    assert holds in best_answer("18", RewardConfig((function,), (1.0,), None))
