"""engine=local: the embedded trainer (stages/grpo)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stages.base.graph import Stage
from stages.base.layout import ROLES
from stages.base.rules import Broken, Rules, be
from stages.catalog import CONVERT, EVALUATE, EXPORT, GRPO, SFT, SPLIT, STRATEGY, TOKENIZE
from stages.engines.declaration import Engine, Load
from stages.engines.sizes import rank_bytes
from stages.fetch.config import licence_files
from stages.grpo import checkpoint_files
from stages.grpo.config import decay_corrections
from stages.grpo.rules import EXAMPLES, PROMPTS, TRAINER, ExampleCount, PromptCount
from stages.grpo.rules import SFT as SFT_RULES
from stages.rewards.config import NUMBERS, judge_of
from stages.weights.config import SPLIT as SPLIT_RULES

if TYPE_CHECKING:
    from stages.models.family import Family
    from stages.models.memory import RoleMemory
    from stages.sections import Sections


IGNORED_KEYS = ("use_seq_parallel", "recompute", "select_recompute", "opt_offload")
"""Keys of a layout that change nothing for the embedded trainer, whose context_parallel is 1."""
EXACT_GROUPS = (2, 4, 8, 16, 32)
"""Group sizes for which the mean of equal float32 rewards was always exact."""


def corrections(run: Sections) -> Iterator[str]:
    """Yield the defects by which earlier versions trained this configuration wrongly."""
    train, rollout = run.train, run.rollout
    yield from decay_corrections(train)
    if rollout.num_generations not in EXACT_GROUPS:
        yield "advantages of equal rewards"
    if train.validate_every and (rollout.repetition_penalty != 1 or rollout.min_tokens > 0):
        yield "validation without repetition_penalty and min_tokens"
    if train.validate_every and judge_of(run.reward) != NUMBERS:
        yield "validation of numbers alone"


def trains(family: Family) -> bool:
    """Return True if the embedded decoder computes a family: grouped-query attention and no experts."""
    return not family.custom_attention and family.experts is None


def stages(run: Sections) -> tuple[Stage, ...]:
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
        replace(SPLIT, bytes_written=sum(ranks[role] for role in run.split.roles)),
        replace(
            SFT,
            computes=True,
            bytes_written=sum(trained.values()),
            skipped=None if run.sft.enabled else "sft.enabled=false: grpo starts from split's weights",
        ),
        replace(
            GRPO,
            inputs={**GRPO.inputs, "weights": weights},
            external=(Path(start) / checkpoint_files.STATE,) if start else (),
            corrections=tuple(corrections(run)),
            workers=run.layout.train.cards,
            computes=True,
            # The result, and per checkpoint weights, both Adam moments and a reference that moves; one more
            # while it is written, and one for the best.
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


def memory(run: Sections) -> tuple[RoleMemory, ...]:
    """Estimate the memory of one worker, per role."""
    from stages.grpo.memory import estimate  # here and below: a run with nothing to do need not load it

    return estimate(run.model, run.layout, run.train, run.rollout, run.tokenize.max_prompt_length)


def shortage(run: Sections, roles: Sequence[RoleMemory], have: int) -> list[str]:
    """Return warnings about what may not fit into this machine's memory of `have` bytes."""
    from stages.models.memory import shown

    workers = run.layout.train.cards
    low, high = (workers * sum(getattr(role, end) for role in roles) for end in ("low", "high"))
    if high <= have:
        return []
    verdict = "do not fit" if low > have else "may not fit"
    need, machine = shown(low, high), shown(have, have)
    return [
        f"memory: {workers} processes with {need} together {verdict} into this machine's {machine}; "
        "use a smaller model, a larger layout.train.micro_batch_num or a shorter rollout.max_tokens"
    ]


def notes(run: Sections) -> Iterator[str]:
    """Yield notes about keys of layouts without effect, and about validation prompts that sft trains on."""
    roles = ROLES if run.engine.sft == "local" else ROLES[1:]  # mindformers reads those of train
    paths = [(role, key) for role in roles for key in IGNORED_KEYS if getattr(run.layout.role(role), key)]
    if paths:
        keys = ", ".join(f"layout.{role}.{key}" for role, key in paths)
        yield f"engine=local does not read {keys}: it saves no memory in these ways"
    train, sft = run.train, run.sft
    seen = train.validation_prompts - sft.check_prompts
    if train.validate_every and sft.enabled and run.sft_data.path is None and seen > 0:
        yield (
            f"train.validation_prompts={train.validation_prompts}: sft trains on {seen} of these prompts, "
            f"because it leaves out the last sft.check_prompts={sft.check_prompts}"
        )


def load(run: Sections, have: int) -> Load:
    """Return the work of one step, and the bytes that a worker may use of `have`."""
    train, rollout = run.train, run.rollout
    length = run.tokenize.max_prompt_length + rollout.max_tokens
    tokens = train.prompts_per_step * rollout.num_generations * length * train.num_iterations
    return Load(tokens, train.num_iterations, have // run.layout.train.cards)


RUN: Rules[Sections] = Rules("local", "ours: stages/grpo")
"""Rules of engine=local; those about the number of rows are checked again after tokenize."""
RUN.include(TRAINER, lambda run: run)
RUN.include(SPLIT_RULES, lambda run: run.split)
RUN.must("split.format", be("safetensors", "engine=local reads no other"), "ours: stages/weights/tensors.py")


@RUN.row("split.roles")
def _split_roles(run: Sections) -> Broken:
    """Require the roles that later stages read."""
    roles = {"train", *(["reference"] if not run.sft.enabled and run.train.beta > 0 else [])}
    missing = [role for role in ROLES if role in roles - set(run.split.roles)]
    if not missing:
        return None
    return (
        f"is missing {', '.join(missing)}, which {'sft' if run.sft.enabled else 'grpo'} reads",
        "set it to null",
    )


def _train_rows(run: Sections) -> PromptCount | None:
    """Return the maximum number of training rows for data from files."""
    return None if run.dataset.train_rows is None else PromptCount(run.train, run.dataset.train_rows)


def _sft_rows(run: Sections) -> ExampleCount | None:
    rows = run.dataset.train_rows
    if not run.sft.enabled or rows is None or run.sft_data.path is not None:
        return None
    return ExampleCount(run.sft, max(0, rows - run.sft.check_prompts))


RUN.include(PROMPTS, _train_rows)
RUN.include(SFT_RULES, lambda run: run.sft if run.sft.enabled else None)
RUN.include(EXAMPLES, _sft_rows)
RUN.must(
    "model.qkv_concat",
    be(False, "engine=local reads separate q, k, v and gate, up weights"),
    "ours: stages/grpo/model.py",
)


ENGINE = Engine(
    name="local",
    keeps_tags=True,
    trains=trains,
    stages=stages,
    rules=RUN,
    notes=notes,
    memory=memory,
    shortage=shortage,
    load=load,
    unrehearsed="engine=local runs on a CPU itself: `grpoflow run` with a small model is its rehearsal",
)
