"""engine=mindrlhf: GRPO by mindspore-ai/mindrlhf under msrun.

Read in this order: config.py (settings), job.py, files.py (what is rendered), rules.py (what is refused),
stage.py (start and end of a run), logs.py (metrics), contract.py (versions of a checkout), vocabulary.py,
memory.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.errors import Problem
from stages.base.graph import Program, Stage
from stages.base.layout import ROLES
from stages.engines import local, programs, upstream_keys
from stages.engines.engine import Checkout, Engine, Environment, Load, R, growth, rank_bytes
from stages.engines.mindformers.checkout import checkout
from stages.engines.mindrlhf import contract, memory, rules, vocabulary
from stages.engines.mindrlhf.config import VERSIONS, MindrlhfEngine
from stages.engines.mindrlhf.files import RENDERED, groups
from stages.engines.mindrlhf.job import Job
from stages.engines.upstream_keys import Schema
from stages.fetch.config import licence_files
from stages.models.families import family_of
from stages.weights.config import split_problems

if TYPE_CHECKING:
    from stages.models.config import ModelConfig
    from stages.models.family import Family
    from stages.models.memory import RoleMemory
    from stages.rewards.probe import Leftover
    from stages.sections import Sections

GRPO = Program("mindrlhf", "stages.engines.mindrlhf.stage", version=2)


class Mindrlhf(Engine[Job]):
    """mindrlhf's tutorial of a family."""

    name = "mindrlhf"
    settings = MindrlhfEngine
    programs = (GRPO,)
    checkouts = (
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
    )
    assumed_contract = VERSIONS[0]
    imports = ("mindspore",)
    rehearsal = "pipeline.rehearsal.mindrlhf"
    rendered = RENDERED

    def trains(self, family: Family) -> bool:
        """Return True if mindrlhf has a tutorial for a family."""
        return family.mindrlhf is not None

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return the graph after fetch; what mindrlhf does itself is skipped, depending on what it loads."""
        return graph(run, self.job(run).engine.load_ckpt_format)

    def job(self, run: Sections) -> Job:
        """Return the job of a run."""
        return Job.from_run(run)

    def derive(self, run: R) -> R:
        """Fill in the contract of the checkout, the tokenizer, the files to read, and max_num_seqs."""
        engine, tutorial = run.engine, family_of(run.model).mindrlhf
        assert isinstance(engine, MindrlhfEngine)
        if tutorial is None:
            return run  # stages.models.families.family_problems refuses it
        if engine.contract == "auto":
            engine = replace(engine, contract=contract.recognise(engine.mindrlhf_home, tutorial))
        if engine.tokenizer == "auto":
            engine = replace(engine, tokenizer=vocabulary.tokenizer_of(run.model))
        run = replace(run, engine=engine)
        if engine.max_num_seqs is None:
            run = replace(run, engine=replace(engine, max_num_seqs=self.job(run).max_num_seqs))
        if engine.load_ckpt_format == "ms_safetensors":
            run = replace(run, convert=replace(run.convert, materialize=True, format="safetensors"))
        elif engine.load_ckpt_format == "ckpt":
            convert = replace(run.convert, materialize=True, format="ckpt")
            run = replace(run, convert=convert, split=replace(run.split, format="ckpt"))
        return run

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield what mindrlhf would refuse, ignore silently or die of."""
        yield from upstream_keys.group_problems("engine.upstream", job.engine.upstream, groups(job))
        yield from rules.problems(job)

    def all_problems(self, run: Sections) -> Iterator[Problem]:
        """Yield the problems of a run, also those of the weights that split cuts for it."""
        yield from super().all_problems(run)
        if self.job(run).engine.load_ckpt_format != "ckpt":
            return
        yield from split_problems(run.split)
        roles = run.split.chosen_roles
        if missing := [role for role in ROLES if role not in roles]:
            rule = f"lacks {', '.join(missing)}, which mindrlhf loads"
            source = "ours: stages/engines/mindrlhf"
            yield Problem("split.roles", list(roles), rule, "set it to null", source)

    def notes(self, job: Job) -> Iterator[str]:
        """Yield what a user should know before the run starts."""
        return rules.notes(job)

    def memory(self, job: Job) -> tuple[RoleMemory, ...]:
        """Return the memory estimate of each role for one card."""
        return memory.estimate(job)

    def shortage(self, job: Job, roles: Sequence[RoleMemory], have: int) -> list[str]:
        """Return warnings about roles that may not fit a card."""
        return memory.warnings(job, roles)

    def load(self, job: Job, have: int) -> Load:
        """Return the work by which layouts are ranked."""
        return memory.step_load(job)

    def environment(self, settings: Any) -> Environment:
        """Return the versions that work, with vLLM's if it generates."""
        known = programs.known_versions("mindrlhf", "machine")
        vllm = programs.windows(programs.VERSIONS, "vllm") if settings.use_vllm else ()
        return replace(known, packages=(*known.packages, *vllm))

    def leftover(self, settings: Mapping[str, Any], model: ModelConfig) -> Leftover | None:
        """Return what its decoder leaves of a stop token in rewarded text."""
        tokenizer = settings["tokenizer"]
        chosen = vocabulary.tokenizer_of(model) if tokenizer == "auto" else tokenizer
        return vocabulary.leftover(model, chosen)

    def schema(self, job: Job) -> Schema | None:
        """Return the keys of the rendered files that the checkouts' classes have; None without them."""
        return contract.schema(job.engine.mindrlhf_home, job.engine.mindformers_home, job.model)


def graph(run: Sections, load_format: str) -> tuple[Stage, ...]:
    """Return the graph after fetch.

    Args:
        run: the configuration.
        load_format: form of the initial weights, see MindrlhfEngine.load_ckpt_format.
    """
    huggingface, ranked = load_format == "hf_safetensors", load_format == "ckpt"
    size, ranks = run.model.weight_bytes, rank_bytes(run)
    reads = f"engine.load_ckpt_format={load_format}: mindrlhf"
    unsplit = f"{reads} {'reads the Hugging Face directory itself' if huggingface else 'cuts it online'}"
    family = family_of(run.model)
    if family.experts is not None:
        ranks["train"] = size  # experts and the parallel optimizer's shares lie on one card each
    weights = {} if huggingface else {"weights": "split" if ranked else "convert"}
    evaluated = local.trains(family) or run.evaluate.program == "vllm"
    unevaluated = f"{family.title}: the embedded decoder does not compute it; set evaluate.program=vllm"
    return (
        replace(catalog.CONVERT, bytes_written=size, skipped=unsplit if huggingface else None),
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
            skipped=None if evaluated else unevaluated,
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
        ),
    )


ENGINE = Mindrlhf()
