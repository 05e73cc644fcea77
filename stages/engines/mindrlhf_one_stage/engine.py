"""engine=mindrlhf_one_stage: mindrlhf's grpo_one_stage.py of March 2025, under msrun.

Read in this order: config.py (settings), job.py, files.py (what is rendered), rules.py (what is refused),
stage.py (start and end of a run), logs.py (metrics). What it has in common with mindrlhf's tutorial is in
stages/engines/mindrlhf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stages.base.errors import Problem
from stages.base.graph import Program, Stage
from stages.engines import programs
from stages.engines.engine import Checkout, Engine, Environment, Load, R, growth, rank_bytes
from stages.engines.mindformers.checkout import checkout
from stages.engines.mindrlhf import engine as mindrlhf
from stages.engines.mindrlhf import vocabulary
from stages.engines.mindrlhf.memory import block_cache, reshard, step_load, train
from stages.engines.mindrlhf_one_stage import rules
from stages.engines.mindrlhf_one_stage.config import CONTRACT, OneStageEngine
from stages.engines.mindrlhf_one_stage.job import DESCRIPTION, Job, recognise
from stages.models import memory
from stages.models.memory import RoleMemory

if TYPE_CHECKING:
    from stages.models.config import ModelConfig
    from stages.models.family import Family
    from stages.rewards.probe import Leftover
    from stages.sections import Sections

GRPO = Program("mindrlhf_one_stage", "stages.engines.mindrlhf_one_stage.stage", version=1)


class MindrlhfOneStage(Engine[Job]):
    """mindrlhf's script that trains in one stage."""

    name = "mindrlhf_one_stage"
    settings = OneStageEngine
    programs = (GRPO,)
    checkouts = (
        Checkout("one_stage", "engine.mindrlhf_home", recognise, DESCRIPTION),
        checkout(
            "engine.mindformers_home",
            "a checkout of mindformers' dev branch of March 2025, which mindrlhf's README names",
            window=">=1.4.0b1",  # what that branch called itself
        ),
    )
    assumed_contract = CONTRACT
    imports = ("mindspore",)
    unrehearsed = (
        "grpo_one_stage.py needs mindformers' dev branch of March 2025, for which no replacement of Ascend "
        "operators is known"
    )

    def trains(self, family: Family) -> bool:
        """Return True for Qwen2, whose tokenizer the script has."""
        return family.name == "qwen2"

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return mindrlhf's graph for rank checkpoints, with those of training and generation only."""
        ranks = rank_bytes(run)
        changes: dict[str, dict[str, Any]] = {
            "strategy": {"sections": ("model", "layout", "split")},
            "split": {"bytes_written": ranks["train"] + ranks["generate"]},
            "grpo": {"program": GRPO, "bytes_written": ranks["train"] * growth(run)},
        }
        graph = mindrlhf.graph(run, "ckpt")
        return tuple(replace(stage, **changes.get(stage.name, {})) for stage in graph)

    def job(self, run: Sections) -> Job:
        """Return the job of a run."""
        return Job.from_run(run)

    def derive(self, run: R) -> R:
        """Fill in the contract of the checkout and the files that the script reads."""
        engine = run.engine
        assert isinstance(engine, OneStageEngine)
        if engine.contract == "auto":
            recognise(engine.mindrlhf_home)
            engine = replace(engine, contract=CONTRACT)
        convert = replace(run.convert, materialize=True, format="ckpt")
        split = replace(run.split, format="ckpt", roles=("train", "generate"))
        return replace(run, engine=engine, convert=convert, split=split)

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield what the script would refuse, ignore silently or die of."""
        return rules.problems(job)

    def notes(self, job: Job) -> Iterator[str]:
        """Yield what a user should know before the run starts."""
        return rules.notes(job)

    def memory(self, job: Job) -> tuple[RoleMemory, ...]:
        """Return train, generate, reference and reshard; raises ConfigError if a layout does not fit.

        Training takes turns with generation and its reference (grpo_one_stage.py, load and offload around
        train and transform; grpo_trainer.py, make_experience).
        """
        model, layout, engine = job.model, job.layout.generate, job.engine
        dtype = model.param_init_type
        held = memory.elements(model, layout, "layout.generate")[0].held
        generate = (
            memory.weights(held, dtype),
            memory.sized("reference weights", held, dtype),
            block_cache(model, layout, engine.num_blocks, engine.block_size),
            memory.working_set(model, layout, engine.chunk_size * job.tokenize.max_prompt_length),
        )
        tokens = job.batch * job.seq_length  # every replica scores the complete batch
        copied = [
            ("train", job.layout.train, dtype),
            ("generate", layout, dtype),
            ("reference", layout, dtype),
        ]
        return (
            train(job),
            RoleMemory("generate", 0, generate),
            memory.scoring(model, layout, tokens, [held], dtype),
            reshard(model, copied),
        )

    def shortage(self, job: Job, roles: Sequence[RoleMemory], have: int) -> list[str]:
        """Return warnings about roles that may not fit a card."""
        return memory.warnings(roles, job.engine.device_memory_gib)

    def load(self, job: Job, have: int) -> Load:
        """Return the work by which layouts are ranked."""
        return step_load(job)

    def environment(self, settings: Any) -> Environment:
        """Return the versions that work."""
        return programs.known_versions("one_stage", "machine_one_stage")

    def leftover(self, settings: Mapping[str, Any], model: ModelConfig) -> Leftover | None:
        """Return what its decoder leaves of a stop token in rewarded text."""
        return vocabulary.leftover(model, "qwen")


ENGINE = MindrlhfOneStage()
