"""Stage export of engine=verl: shards to a Hugging Face directory by verl.model_merger.

The merger writes bfloat16 whatever the shards hold, and leaves out a tied lm_head; merge.py adds LoRA's
adapter to the weights. The artifact has the fetched model's files and names; its floating tensors are
bfloat16 unless export.dtype names another type.
Source: verl 0.9.1, model_merger/base_model_merger.py.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.reader import read
from stages.engines.model_directory import import_converted
from stages.engines.outside import Rendered, make_start, options, write_start
from stages.engines.verl.config import VerlEngine
from stages.engines.verl.job import PROGRAMS
from stages.engines.verl.results import ACTOR
from stages.export.stage import make_usable

LORA_MERGER = str(PROGRAMS / "merge.py")
BACKENDS = {"fsdp2": "fsdp", "megatron": "megatron"}
"""engine.strategy -> the merger's --backend."""
MERGED = "merged"


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return how to start the merger, which reads no rendered file."""
    engine = read(VerlEngine, config["engine"], "engine")
    named = {
        "backend": BACKENDS[engine.strategy],
        "local_dir": inputs["grpo"] / ACTOR,
        "target_dir": work / MERGED,
    }
    command = [LORA_MERGER] if config["train"]["lora_rank"] else ["-m", "verl.model_merger"]
    command += ["merge", *options(named)]
    return Rendered(make_start(engine, command, work, {"HF_HUB_OFFLINE": "1"}, (), workers=0))


def prepare(context: Context) -> None:
    """Remove the result of an earlier attempt."""
    shutil.rmtree(context.work / MERGED, ignore_errors=True)
    write_start(context.work, render(context.config, context.inputs, context.work))


def collect(context: Context) -> None:
    """Check names, shapes and numbers of the result, and import it with the fetched model's files."""
    import_converted(context, context.work / MERGED, "bfloat16")
    make_usable(context.config, context.inputs, context.output)
