"""engine=verl: GRPO by verl on Ray, on NPUs or on a CPU.

Read in this order: config.py (settings), job.py, files.py (what is rendered), rules.py (what is refused),
train.py (start and end of a run), results.py (checkpoints and metrics), agent.py (completions of several
turns), memory.py, tokenize.py, export.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stages import catalog
from stages.base.errors import Problem
from stages.base.graph import Program, Stage
from stages.engines import hugging_face_stages, programs
from stages.engines.engine import Engine, Environment, Lock, R, Window
from stages.engines.verl import memory, rules
from stages.engines.verl.config import VerlEngine
from stages.engines.verl.files import MODEL_ENGINES, RENDERED
from stages.engines.verl.job import PROGRAMS, TRAIN_DATA, Job
from stages.grpo.rules import prompt_problems

if TYPE_CHECKING:
    from stages.models.family import Family
    from stages.models.memory import RoleMemory
    from stages.sections import Sections

VERSIONS = Path(__file__).with_name("versions.yaml")
LOCKS = Path(__file__).with_name("locks")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Index with torch's builds for CPUs, which torch_npu needs, too."""


SEPARATE = frozenset(("engine", key) for key in ("mode", "staleness", "partial_rollout", "rollout_cards"))
"""Settings that a run with engine.mode=sync does not need."""
TURNS = frozenset({("engine", "tool_parser")})
"""Settings that a run without rollout.agent does not need."""


class Verl(Engine[Job]):
    """verl 0.9.1 (python -m verl.trainer.main_ppo)."""

    name = "verl"
    settings = VerlEngine
    programs = (
        Program("verl_grpo", "stages.engines.verl.train", version=2),
        Program("verl_export", "stages.engines.verl.export", version=1),
    )
    imports = ("verl", "ray")
    keeps_tags = True
    logs_kl = True
    has_agents = True
    rehearsal = "pipeline.rehearsal.verl"
    rendered = RENDERED

    def trains(self, family: Family) -> bool:
        """Return True for families whose Hugging Face classes verl was read with."""
        return family.name in ("qwen2", "qwen3", "qwen3_moe", "llama3")

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return the graph after fetch; verl reads the fetched directory, and evaluate the export."""
        unread = hugging_face_stages.unread_settings(VerlEngine)
        one_turn = TURNS if run.rollout.agent is None else frozenset[tuple[str, str]]()
        job, (grpo_program, export_program) = self.job(run), self.programs
        grpo = replace(
            catalog.GRPO,
            workers=job.cards,
            # per checkpoint: float32 weights with both moments; one more while it is written
            bytes_written=12 * run.model.num_parameters * (1 + run.train.keep_checkpoints),
            unread=one_turn | (frozenset() if job.is_async else SEPARATE),
            required_files=lambda config: (catalog.RESULT, "actor/huggingface/config.json"),
            program=grpo_program,
        )
        unread_by_export = unread - {("engine", "strategy")}
        export = replace(catalog.EXPORT, unread=unread_by_export, program=export_program)
        tokenize = "stages.engines.verl.tokenize"
        return hugging_face_stages.stages(run, tokenize, TRAIN_DATA, unread, grpo, export)

    def job(self, run: Sections) -> Job:
        """Return the job of a run."""
        return Job.from_run(run)

    def derive(self, run: R) -> R:
        """Return the configuration with the program that generates completions on the chosen device."""
        settings = run.engine
        assert isinstance(settings, VerlEngine)
        if settings.rollout is not None:
            return run
        rollout: Literal["vllm", "transformers"] = "transformers" if settings.device == "cpu" else "vllm"
        return replace(run, engine=replace(settings, rollout=rollout))

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield what verl would refuse, ignore silently or die of."""
        return rules.problems(job)

    def all_problems(self, run: Sections) -> Iterator[Problem]:
        """Yield the problems of a run, and whether enough prompts are left to train on."""
        yield from super().all_problems(run)
        if run.train.validate_every and run.dataset.train_rows is not None:
            yield from prompt_problems(run.train, run.dataset.train_rows)

    def notes(self, job: Job) -> Iterator[str]:
        """Yield what a user should know before the run starts."""
        return rules.notes(job)

    def memory(self, job: Job) -> tuple[RoleMemory, ...]:
        """Return the memory estimate of each role for one card; nothing for Megatron and for a CPU."""
        return memory.estimate(job)

    def shortage(self, job: Job, roles: Sequence[RoleMemory], have: int) -> list[str]:
        """Return warnings about what may not fit into a card."""
        return memory.warnings(job, roles)

    def schema_script(self, job: Job) -> tuple[str, ...]:
        """Return the script that prints the keys of ppo_trainer, for verl's interpreter."""
        return str(PROGRAMS / "schema.py"), MODEL_ENGINES[job.engine.strategy]

    def environment(self, settings: Any) -> Environment:
        """Return the versions that verl 0.9.1 works with on the device of the settings."""
        window, lock = packages(settings.device, settings.rollout), lock_of(settings.device, settings.rollout)
        machine = () if settings.device == "cuda" else windows("machine")  # CANN and the driver
        return Environment(window, *machine, lock=lock)


def packages(device: str, rollout: str | None) -> tuple[Window, ...]:
    """Return the packages for a device and a program that generates completions."""
    if device == "cpu":
        return windows("all", "cpu", "vllm_cpu") if rollout == "vllm" else windows("all", "cpu")
    if device == "cuda":
        return windows("all", "cuda") if rollout == "sglang" else windows("all", "cuda", "vllm_cuda")
    return windows("all", "npu") if rollout == "sglang" else windows("all", "npu", "vllm")


def lock_of(device: str, rollout: str | None) -> Lock | None:
    """Return the complete environment for a device and a program; None if verl's own guide installs it."""
    if device == "cpu":
        name = "cpu_vllm.txt" if rollout == "vllm" else "cpu.txt"
        return Lock(LOCKS / name, ("--no-deps", f"--extra-index-url={CPU_INDEX}"))
    if rollout == "sglang" or device == "cuda":
        return None
    # vLLM's own kernels are for CUDA
    options = (f"--extra-index-url={CPU_INDEX}", "--no-binary=vllm")
    return Lock(LOCKS / "npu.txt", options, ("VLLM_TARGET_DEVICE=empty",))


def windows(*groups: str) -> tuple[Window, ...]:
    """Return the versions that work, from groups of versions.yaml."""
    return programs.windows(VERSIONS, *groups)


ENGINE = Verl()
