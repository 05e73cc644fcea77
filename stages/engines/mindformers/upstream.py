"""mindformers.upstream: train.SECTION.KEY of the YAML file of a supervised run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines.mindformers.job import Job
from stages.engines.upstream import Upstream, load, merged

FIELDS = Path(__file__).with_name("fields")
TEMPLATE = FIELDS / "finetune.yaml"
RECORDS = (
    ("train", FIELDS / "template.yaml", ""),
    ("train.model.model_config", FIELDS / "LlamaConfig.yaml", ""),
)


def fields(job: Job) -> Upstream:
    """Return the fields of the file."""
    return load(FIELDS / "keys.yaml", *RECORDS, templates=(("train", TEMPLATE),))


def added(job: Job) -> Mapping[str, Any]:
    """Return the added keys of the file, which has the data set's twice."""
    keys: Mapping[str, Any] = job.mindformers.upstream.get("train", {})
    if "train_dataset" not in keys:
        return keys
    return merged(keys, {"train_dataset_task": {"dataset_config": keys["train_dataset"]}})


def move(values: dict[str, Any]) -> None:
    """Move engine.upstream.train in a plain configuration to mindformers.upstream.train, where it belongs."""
    keys = values["engine"].get("upstream")
    if isinstance(keys, dict) and "train" in keys:
        below = values["mindformers"]["upstream"]
        values["mindformers"]["upstream"] = merged(below, {"train": keys.pop("train")})
        if values["engine"]["name"] == "local":
            del values["engine"]["upstream"]  # it has no other program
