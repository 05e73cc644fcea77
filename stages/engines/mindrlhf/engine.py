"""engine=mindrlhf: GRPO by mindspore-ai/mindrlhf under msrun."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.errors import ConfigError
from stages.base.graph import Program, Stage
from stages.base.layout import ROLES
from stages.base.rules import Broken, Rules, given, indices, once
from stages.engines import local, tables, upstream
from stages.engines.declaration import Declaration, Declared
from stages.engines.engine import Checkout, Load
from stages.engines.mindformers.checkout import checkout
from stages.engines.mindrlhf import contract, memory, vocabulary
from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.job import Job, MindrlhfJob
from stages.engines.mindrlhf.rules import RULES
from stages.engines.programs import VERSIONS as PROGRAMS
from stages.engines.programs import known, windows
from stages.engines.sizes import growth, rank_bytes
from stages.fetch.config import licence_files
from stages.models.families import FAMILIES, family_of, trained_by
from stages.models.layouts import warnings as layout_warnings
from stages.models.memory import GIB
from stages.weights.config import SplitConfig

if TYPE_CHECKING:
    from stages.sections import Sections

GRPO = Program("mindrlhf", "stages.engines.mindrlhf.stage", version=1)
MOST_SEQUENCES = 1024
"""mindrlhf's default for max_num_seqs (grpo_configs.py); vLLM refuses more than max_model_len."""


def stages(run: Sections) -> tuple[Stage, ...]:
    """Return the graph after fetch; what mindrlhf does itself is skipped, depending on what it loads."""
    settings = Job.from_run(run)
    return graph(run, settings.engine.load_ckpt_format, converted=settings.tutorial.converts)


def graph(run: Sections, load_format: str, converted: bool) -> tuple[Stage, ...]:
    """Return the graph after fetch.

    Args:
        run: the configuration.
        load_format: form of the initial weights, see MindrlhfEngine.load_ckpt_format.
        converted: True if model.path has the weights as mindformers' own script converted them.
    """
    huggingface, ranked = load_format == "hf_safetensors", load_format == "ckpt"
    size, ranks = run.model.weight_bytes, rank_bytes(run)
    reads = f"engine.load_ckpt_format={load_format}: mindrlhf"
    unsplit = f"{reads} {'reads the Hugging Face directory itself' if huggingface else 'cuts it online'}"
    family = family_of(run.model)
    if converted:
        ranks["train"] = size  # experts and the parallel optimizer's shares lie on one card each
        made = "model.path holds what mindformers' script made and mindrlhf reads"
        unsplit = f"{family.title}: {made} ({load_format})"
    weights = {} if huggingface or converted else {"weights": "split" if ranked else "convert"}
    evaluated = local.trains(family)
    return (
        replace(catalog.CONVERT, bytes_written=size, skipped=unsplit if huggingface or converted else None),
        catalog.TOKENIZE,
        replace(catalog.STRATEGY, skipped=None if ranked else unsplit),
        replace(catalog.SPLIT, bytes_written=sum(ranks.values()), skipped=None if ranked else unsplit),
        replace(catalog.SFT, skipped="sft.enabled=false: mindrlhf starts from the fetched weights"),
        replace(
            catalog.GRPO,
            sections=("model", "layout", "tokenize", "rollout", "reward", "train", "engine", "seed"),
            inputs={**weights, "tokenize": "tokenize", "fetch": "fetch"},
            workers=run.layout.train.cards,
            # Per checkpoint weights, both Adam moments and the reference; one more while it is written.
            bytes_written=(3 * ranks["train"] + ranks["reference"])
            * (1 + run.train.keep_checkpoints)
            * growth(run),
            computes=True,
            program=GRPO,
        ),
        replace(
            catalog.EVALUATE,
            inputs={**catalog.EVALUATE.inputs, "before": "fetch", "strategy": "grpo"},
            computes=True,
            skipped=None if evaluated else f"{family.title}: only {trained_by(local.trains)} is evaluated",
        ),
        replace(
            catalog.EXPORT,
            inputs={
                "grpo": "grpo",
                **({"evaluate": "evaluate"} if evaluated else {}),
                "strategy": "grpo",
                "tokenize": "tokenize",
                "fetch": "fetch",
            },
            external=licence_files(run.model),
            bytes_written=size,
            skipped=f"{family.title}: model.path is no Hugging Face directory; see grpoflow weights"
            if converted
            else None,
        ),
    )


def derive(values: dict[str, Any]) -> None:
    """Fill in the contract of the user's checkout, the files to read, and the number of sequences."""
    engine, convert, split = values["engine"], values["convert"], values["split"]
    tutorial = FAMILIES[values["model"]["family"]].mindrlhf
    if engine["contract"] == "auto" and tutorial is not None:
        engine["contract"] = contract.recognise(engine["mindrlhf_home"], tutorial)
    if engine["tokenizer"] == "auto":
        engine["tokenizer"] = vocabulary.tokenizer_of(values["model"])
    if engine["load_ckpt_format"] == "ms_safetensors":
        convert |= {"materialize": True, "format": "safetensors"}
    elif engine["load_ckpt_format"] == "ckpt":
        convert |= {"materialize": True, "format": "ckpt"}
        split["format"] = "ckpt"
    if engine["max_num_seqs"] is None:
        engine["max_num_seqs"] = MOST_SEQUENCES  # stays, where other values cannot be read
        with contextlib.suppress(ConfigError):
            if tutorial is not None:
                engine["max_num_seqs"] = min(MOST_SEQUENCES, Job.from_config(values).max_model_len)


SPLIT = Rules[SplitConfig]("split", "ours: stages/weights/split.py")
SPLIT.must("split.roles", given("must name at least one role", "set it to null"))
SPLIT.must("split.roles[{}]", once("split.roles"), name="once", each=indices("split.roles"))
RUN = Rules[Any]("mindrlhf_run")
"""Rules of a run; its job checks all of them again, except those about split's output."""
RUN.include(RULES, lambda run: Job.from_run(run))
RUN.include(SPLIT, lambda run: run.split if _splits(run) else None)


@RUN.row("split.roles", "ours: stages/engines/mindrlhf")
def _split_roles(run: Sections) -> Broken:
    """Require the roles that mindrlhf loads."""
    missing = [role for role in ROLES if role not in run.split.chosen_roles]
    if not missing or not _splits(run):
        return None
    return f"lacks {', '.join(missing)}, which mindrlhf loads", "set it to null"


def _splits(run: Sections) -> bool:
    """Return True if the split stage runs."""
    settings = Job.from_run(run)
    return settings.engine.load_ckpt_format == "ckpt" and not settings.tutorial.converts


def step_load(job: MindrlhfJob) -> Load:
    """Return the work of one step and the memory of a card."""
    tokens = job.packs * job.seq_length * job.train.num_iterations
    return Load(tokens, job.updates_per_step, job.engine.device_memory_gib * GIB)


def applying_notes(job: MindrlhfJob, applies: Mapping[str, bool]) -> Iterator[str]:
    """Yield the notes that apply, and those about layouts; also for the one-stage script."""
    yield from tables.notes(Path(__file__).with_name("notes.yaml"), job, applies)
    for role in job.roles:
        yield from (f"layout.{role}: {text}" for text in layout_warnings(job.model, job.layout.role(role)))


def notes(job: Job) -> Iterator[str]:
    """Yield notes about steps, weights, and values that mindrlhf does not pass on."""
    train, rollout, engine, ids = job.train, job.rollout, job.engine, job.model.token_ids
    several = job.updates_per_step > 1
    layout = job.layout.train
    applies = {
        "steps": not several,
        "steps_of_updates": several,
        "unclipped": job.version == "0cd087455" and train.num_iterations == 1 and several,
        "micro_batches": layout.pipeline_stage == 1 and layout.micro_batch_num > 1,
        "weight_decay": train.weight_decay != 0.1,
        "temperature": rollout.temperature != 1,
        "endless": job.model.source != "builtin" and set(ids.eos) == {ids.pad},
        "min_p": bool(rollout.min_p),
        "equal_completions": engine.use_vllm == 0 and job.distinct_completions < rollout.num_generations,
        "seed": True,
        "world_size": engine.use_vllm > 0,
    }
    yield from applying_notes(job, applies)
    yield from job.tutorial.notes
    yield from upstream.notes("engine", engine.upstream)


VLLM = windows(PROGRAMS, "vllm")
KNOWN = known("mindrlhf", "machine")
ENGINE = Declared(
    Declaration(
        name="mindrlhf",
        trains=lambda family: family.mindrlhf is not None,
        stages=stages,
        rules=RUN,
        programs=(GRPO,),
        checkouts=(
            Checkout(
                "mindrlhf",
                "engine.mindrlhf_home",
                contract.recognise,
                f"a checkout of mindspore-ai/mindrlhf at {' or '.join(VERSIONS)}",
            ),
            checkout(
                "engine.mindformers_home",
                "a checkout of mindformers at 6a52b43 or 051d65f, as mindrlhf's users pin, or pip install"
                " mindformers==1.6.0",
            ),
        ),
        known=dict.fromkeys(VERSIONS, KNOWN),
        imports=("mindspore",),
        optional_packages=lambda settings: VLLM if settings.use_vllm else (),
        rehearsal="pipeline.rehearsal.mindrlhf",
        derive=derive,
        notes=lambda run: notes(Job.from_run(run)),
        memory=lambda run: memory.estimate(Job.from_run(run)),
        shortage=lambda run, roles, have: memory.warnings(Job.from_run(run), roles),
        load=lambda run, have: step_load(Job.from_run(run)),
        leftover=lambda settings, model: vocabulary.leftover(model, settings["tokenizer"]),
    )
)
