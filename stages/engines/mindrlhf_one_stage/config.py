"""Settings of engine=mindrlhf_one_stage. Defaults: conf/engine/mindrlhf_one_stage.yaml."""

from dataclasses import dataclass
from typing import Annotated, Literal

from stages.base.bounds import Positive
from stages.base.identity import NotInIdentity
from stages.engines.config import UpstreamKeys
from stages.engines.mindrlhf.config import MindrlhfSettings

CONTRACT: Literal["2d0e84d"] = "2d0e84d"
"""Commit of mindspore-ai/mindrlhf (2025-03-21) from which grpo_one_stage.py has the known interface."""


@dataclass(frozen=True)
class OneStageEngine(MindrlhfSettings):
    """mindrlhf's grpo_one_stage.py under msrun: reads two checkpoints, writes one."""

    name: Literal["mindrlhf_one_stage"]
    """mindrlhf_one_stage: a checkout of mindspore-ai/mindrlhf from 2d0e84d to before f251809."""
    contract: Literal["auto", "2d0e84d"]
    """Version of arguments and behaviour; auto: 2d0e84d, which a checkout must have."""
    num_blocks: Positive
    """Blocks of the generation's cache (shipped YAML: 1024)."""
    enable_compile_cache: Annotated[bool, NotInIdentity()]
    """Keep compiled graphs in generate_cache of the work directory, for the next start (default false)."""
    save_data_file: Annotated[str | None, NotInIdentity()]
    """MindRecord file to which every eighth rank writes each step's samples; null: none (the default)."""
    upstream: UpstreamKeys
    """train.KEY with sft=mindformers: more keys of mindformers' YAML; none of the script's own files."""


SETTINGS = OneStageEngine
