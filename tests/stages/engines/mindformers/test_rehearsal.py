"""The rehearsal of supervised training renders what the run renders, but for sizes."""

from pathlib import Path

from pipeline.config.load import load
from stages.engines.mindformers.finetune_yaml import finetune
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.rehearsal.shim import shrink
from stages.engines.mindformers.rules import RULES
from tests.stages.engines.rendered import flat

PATHS = Paths(Path("/run"), Path("/run/sft.mindrecord"), Path("/run/weights"))
RECIPE = [
    "engine=mindrlhf", "engine.sft=mindformers", "model=qwen2_5_7b", "model.path=/hf",
    "dataset=gsm8k", "dataset.path=/data", "layout=dp1_mp4_pp2",
    "layout.train.recompute=true", "mindformers.epochs=3",
]  # fmt: skip
SIZES = {
    "runner_config.epochs", "runner_config.gradient_accumulation_steps",
    "parallel_config.model_parallel", "parallel_config.pipeline_stage", "parallel_config.micro_batch_num",
    "recompute_config.recompute",  # layers of each pipeline stage, or of all
    "model.model_config.hidden_size", "model.model_config.num_layers", "model.model_config.num_heads",
    "model.model_config.n_kv_heads", "model.model_config.intermediate_size", "model.model_config.seq_length",
    "use_parallel", "auto_trans_ckpt",  # one worker
}  # fmt: skip


def _rendered(values):
    job = Job.from_config(values)
    assert RULES.check(job) == []
    return flat(finetune(job, PATHS, resume=False), lists=True)


def test_only_rendered_sizes_change():
    plain = load(RECIPE).plain()
    small = shrink(plain, Path("/small"), Path("/script.json"))
    before, after = _rendered(plain), _rendered(small)
    assert _without_checkpoints(before).keys() >= _without_checkpoints(after).keys()
    different = {key for key in after if before.get(key) != after[key]}
    steps = {key for key in different if key.endswith("save_checkpoint_steps")}
    assert different - steps <= SIZES
    assert steps and "model.model_config.hidden_size" in different


def _without_checkpoints(rendered):
    """A list per pipeline stage becomes one value."""
    return {key: value for key, value in rendered.items() if not key.startswith("recompute_config.recompute")}
