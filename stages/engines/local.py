"""engine=local: the embedded trainer (stages/grpo)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stages.base.checks import equal
from stages.base.errors import Problem
from stages.base.graph import Stage
from stages.base.layout import ROLES
from stages.catalog import CONVERT, EVALUATE, EXPORT, GRPO, SFT, SPLIT, STRATEGY, TOKENIZE
from stages.engines.engine import Engine, Load, rank_bytes
from stages.fetch.config import licence_files
from stages.grpo import checkpoint
from stages.grpo.config import LocalEngine
from stages.grpo.rules import (
    algorithm_notes,
    example_problems,
    prompt_problems,
    sft_problems,
    trainer_problems,
)
from stages.weights.config import split_problems

if TYPE_CHECKING:
    from stages.models.family import Family
    from stages.models.memory import RoleMemory
    from stages.sections import Sections


IGNORED_KEYS = ("use_seq_parallel", "recompute", "select_recompute", "opt_offload")
"""Keys of a layout that change nothing for the embedded trainer, whose context_parallel is 1."""


def trains(family: Family) -> bool:
    """Return True if the embedded decoder computes a family: grouped-query attention and no experts."""
    return not family.custom_attention and family.experts is None


class Local(Engine["Sections"]):
    """The embedded MindSpore trainer; its job is the run itself."""

    name = "local"
    settings = LocalEngine
    keeps_tags = True
    logs_kl = True
    unrehearsed = "engine=local runs on a CPU itself: `grpoflow run` with a small model is its rehearsal"

    def trains(self, family: Family) -> bool:
        """Return True if the embedded decoder computes a family."""
        return trains(family)

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return the graph after the data: sft if enabled, then grpo from rank shards."""
        weights = "sft" if run.sft.enabled else "split"
        size, ranks = run.model.weight_bytes, rank_bytes(run)
        trained = rank_bytes(run, run.model.trained_bytes)
        weights_bytes = rank_bytes(run, 4 * run.model.num_parameters)["train"]  # of each set in a checkpoint
        sets = 4 if run.train.ref_model_sync_steps else 3
        start = run.train.resume_from
        return (
            replace(CONVERT, bytes_written=size if run.convert.materialize else None),
            TOKENIZE,
            STRATEGY,
            replace(SPLIT, bytes_written=sum(ranks[role] for role in run.split.chosen_roles)),
            replace(
                SFT,
                computes=True,
                bytes_written=sum(trained.values()),
                skipped=None if run.sft.enabled else "sft.enabled=false: grpo starts from split's weights",
            ),
            replace(
                GRPO,
                inputs={**GRPO.inputs, "weights": weights},
                external=(Path(start) / checkpoint.STATE,) if start else (),
                workers=run.layout.train.cards,
                computes=True,
                # The result, and per checkpoint weights, both Adam moments and a reference that moves;
                # one more while it is written, and one for the best.
                bytes_written=trained["train"] + sets * weights_bytes * (2 + run.train.keep_checkpoints),
            ),
            replace(
                EVALUATE,
                sections=(*EVALUATE.sections[:-1], "engine", "seed"),
                inputs={**EVALUATE.inputs, "before": weights, "strategy": "strategy"},
                computes=True,
            ),
            replace(
                EXPORT,
                inputs={**EXPORT.inputs, "strategy": "strategy"},
                external=licence_files(run.model),
                bytes_written=size,
            ),
        )

    def job(self, run: Sections) -> Sections:
        """Return the run."""
        return run

    def problems(self, job: Sections) -> Iterator[Problem]:
        """Yield what the trainer refuses; problems of the number of rows are checked again after tokenize."""
        yield from trainer_problems(job)
        yield from split_problems(job.split)
        reads = "engine=local reads no other"
        source = "ours: stages/weights/tensors.py"
        yield from equal("split.format", job.split.format, "safetensors", reads, source)
        needed = {"train", *(["reference"] if not job.sft.enabled and job.train.beta > 0 else [])}
        roles = job.split.chosen_roles
        if missing := [role for role in ROLES if role in needed - set(roles)]:
            reader = "sft" if job.sft.enabled else "grpo"
            rule = f"is missing {', '.join(missing)}, which {reader} reads"
            yield Problem("split.roles", list(roles), rule, "set it to null", "ours: stages/grpo")
        rows = job.dataset.train_rows  # null: as many as the files have
        if rows is not None:
            yield from prompt_problems(job.train, rows)
        if job.sft.enabled:
            yield from sft_problems(job.sft)
        if job.sft.enabled and rows is not None and job.sft_data.path is None:
            yield from example_problems(job.sft, max(0, rows - job.sft.check_prompts))
        why, source = "engine=local reads separate q, k, v and gate, up weights", "ours: stages/grpo/model.py"
        yield from equal("model.qkv_concat", job.model.qkv_concat, False, why, source)

    def notes(self, job: Sections) -> Iterator[str]:
        """Yield notes about keys without effect, and about validation prompts that sft trains on."""
        yield from algorithm_notes(job.train)
        roles = ROLES if job.engine.sft == "local" else ROLES[1:]  # mindformers reads those of train
        paths = [(role, key) for role in roles for key in IGNORED_KEYS if getattr(job.layout.role(role), key)]
        if paths:
            keys = ", ".join(f"layout.{role}.{key}" for role, key in paths)
            yield f"engine=local does not read {keys}: it saves no memory in these ways"
        train, sft = job.train, job.sft
        seen = train.validation_prompts - sft.check_prompts
        if train.validate_every and sft.enabled and job.sft_data.path is None and seen > 0:
            yield (
                f"train.validation_prompts={train.validation_prompts}: sft trains on {seen} of these "
                f"prompts, because it leaves out the last sft.check_prompts={sft.check_prompts}"
            )

    def memory(self, job: Sections) -> tuple[RoleMemory, ...]:
        """Estimate the memory of one worker, per role."""
        from stages.grpo.memory import estimate  # here and below: a run with nothing to do need not load it

        return estimate(job.model, job.layout, job.train, job.rollout, job.tokenize.max_prompt_length)

    def shortage(self, job: Sections, roles: Sequence[RoleMemory], have: int) -> list[str]:
        """Return warnings about what may not fit into this machine's memory of `have` bytes."""
        from stages.models.memory import shown

        workers = job.layout.train.cards
        low, high = (workers * sum(getattr(role, end) for role in roles) for end in ("low", "high"))
        if high <= have:
            return []
        verdict = "do not fit" if low > have else "may not fit"
        need, machine = shown(low, high), shown(have, have)
        return [
            f"memory: {workers} processes with {need} together {verdict} into this machine's {machine}; "
            "use a smaller model, a larger layout.train.micro_batch_num or a shorter rollout.max_tokens"
        ]

    def load(self, job: Sections, have: int) -> Load:
        """Return the work of one step, and the bytes that a worker may use of `have`."""
        train, rollout = job.train, job.rollout
        length = job.tokenize.max_prompt_length + rollout.max_tokens
        tokens = train.prompts_per_step * rollout.num_generations * length * train.num_iterations
        return Load(tokens, train.num_iterations, have // job.layout.train.cards)


ENGINE = Local()
