"""The rehearsal of supervised training renders what the run renders, but for sizes."""

from pathlib import Path

from pipeline.config.load import load
from stages.engines.mindformers.finetune_yaml import finetune
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.rehearsal.shim import shrink
from stages.engines.mindformers.rules import RULES
from stages.engines.upstream import leaves

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
    return dict(leaves(finetune(job, PATHS, resume=False)))


def test_only_rendered_sizes_change():
    plain = load(RECIPE).plain()
    before, after = _rendered(plain), _rendered(shrink(plain, Path("/small"), Path("/script.json")))
    assert before.keys() >= after.keys()
    different = {key for key in after if before[key] != after[key]}
    assert "model.model_config.hidden_size" in different and different <= {*SIZES, "callbacks"}
    for old, new in zip(before["callbacks"], after["callbacks"], strict=True):
        assert {key for key in old if old[key] != new[key]} <= {"save_checkpoint_steps"}
