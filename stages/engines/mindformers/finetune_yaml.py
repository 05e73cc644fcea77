"""Content of finetune.yaml: its template, computed values, and the keys of mindformers.upstream.train."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines.mindformers.checkpoints import PREFIXES, checkpoints_to_keep
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.model_sections import recompute_config, training
from stages.engines.template import ABSENT, fill
from stages.engines.upstream import Upstream, load, merged
from stages.models.families import network_of

Values = dict[str, Any]
FIELDS = Path(__file__).with_name("fields")
TEMPLATE = FIELDS / "finetune.yaml"
RECORDS = (
    ("train", FIELDS / "template.yaml", ""),
    ("train.model.model_config", FIELDS / "LlamaConfig.yaml", ""),
)
SCHEDULES = {
    "constant": "ConstantWarmUpLR",
    "cosine": "CosineWithWarmUpLR",
    "linear": "PolynomialWithWarmUpLR",
}


def fields(job: Job) -> Upstream:
    """Return the fields of the file."""
    return load(FIELDS / "keys.yaml", *RECORDS, templates=(("train", TEMPLATE),))


def added(job: Job) -> Mapping[str, Any]:
    """Return the added keys of the file, which has the data set's twice."""
    keys: Mapping[str, Any] = job.mindformers.upstream.get("train", {})
    if "train_dataset" not in keys:
        return keys
    return merged(keys, {"train_dataset_task": {"dataset_config": keys["train_dataset"]}})


def finetune(job: Job, paths: Paths, resume: bool) -> Values:
    """Return the complete file."""
    content = fill(TEMPLATE, job, paths, _derived(job, paths, resume))
    content["train_dataset_task"] |= {"dataset_config": content["train_dataset"]}
    return content


def _derived(job: Job, paths: Paths, resume: bool) -> Values:
    settings, layout = job.mindformers, job.layout.train
    falls = settings.schedule != "constant" and settings.final_share < 1
    recompute, shard_size = recompute_config(job.model, layout), layout.optimizer_weight_shard_size
    checkpoints = {
        "type": "CheckpointMonitor",
        "prefix": PREFIXES["checkpoint"],
        # mindformers always saves at the end; with checkpoint_every=0 only then
        "save_checkpoint_steps": settings.checkpoint_every or 10**9,
        "keep_checkpoint_max": checkpoints_to_keep(settings.keep_checkpoints),
        "integrated_save": False,
        "async_save": False,
        "checkpoint_format": "safetensors",
    }
    return {
        "resume": resume,
        "auto_trans_ckpt": job.parallel and not resume,
        "accumulation_steps": 1 if job.is_piped else job.micro_batches,
        "micro_batch_num": job.micro_batches if job.is_piped else 1,
        "clips": settings.max_grad_norm is not None,
        "betas": [settings.adam_beta1, settings.adam_beta2],
        "schedule": SCHEDULES[settings.schedule if falls else "constant"],
        "last_rate": settings.learning_rate * settings.final_share if falls else ABSENT,
        "data_loader": {"type": "MindDataset", "dataset_dir": str(paths.dataset), "shuffle": True},
        "shard_size": ABSENT if shard_size == -1 else shard_size,
        "recompute": recompute["recompute"],
        "select_recompute": recompute["select_recompute"],
        "callbacks": [{"type": "MFLossMonitor"}, checkpoints],
        "model": {
            **training(job.model, layout, job.seq_length),
            "batch_size": settings.examples_per_card,
            "do_sample": False,
        },
        "arch": dict(network_of(job.model).arch),
    }
