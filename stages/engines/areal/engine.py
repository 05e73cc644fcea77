"""engine=areal: GRPO by AReaL, on NPUs or on a CPU.

Read in this order: config.py (settings), contract.py (versions), job.py, files.py (what is rendered),
rules.py (what is refused), memory.py (estimates), train.py (start and end of a run), programs/grpoflow_areal
(what runs in AReaL's interpreter), results.py (state, metrics, model), tokenize.py, export.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.errors import Problem
from stages.base.graph import Program, Stage
from stages.engines import hugging_face_stages, programs
from stages.engines.areal import contract, memory, rules
from stages.engines.areal.config import ArealEngine
from stages.engines.areal.files import RENDERED
from stages.engines.areal.job import PROGRAMS, TRAIN_DATA, Job
from stages.engines.engine import Checkout, Engine, Environment, Load, R

if TYPE_CHECKING:
    from stages.models.family import Family
    from stages.models.memory import RoleMemory
    from stages.sections import Sections

VERSIONS = Path(__file__).with_name("versions.yaml")


class Areal(Engine[Job]):
    """AReaL 1.0.4 and ascend-v1.0.5 (areal.PPOTrainer, single controller, version 1)."""

    name = "areal"
    settings = ArealEngine
    programs = (Program("areal_grpo", "stages.engines.areal.train", version=1),)
    checkouts = (
        Checkout(
            "areal",
            "engine.areal_home",
            contract.version_of_checkout,
            "a checkout of areal-project/AReaL at 2262610b8 (branch ascend-v1.0.5), or pip install --no-deps"
            " areal==1.0.4",
            "areal",
            "==1.0.4",
        ),
    )
    imports = ("areal", "ray")
    keeps_tags = True
    rehearsal = "pipeline.rehearsal.areal"
    rendered = RENDERED

    def trains(self, family: Family) -> bool:
        """Return True for families whose Hugging Face classes AReaL was read with."""
        return family.name in ("qwen2", "qwen3", "llama3")

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return the graph after fetch; AReaL reads the fetched directory, and evaluate the export."""
        unread = hugging_face_stages.unread_settings(ArealEngine)
        grpo = replace(
            catalog.GRPO,
            workers=self.job(run).cards,
            # two states of float32 weights with both moments, and the model
            bytes_written=2 * 12 * run.model.num_parameters + 4 * run.model.num_parameters,
            required_files=lambda config: (catalog.RESULT, "metrics.jsonl", "model/config.json"),
            program=self.programs[0],
        )
        export = replace(catalog.EXPORT, entry="stages.engines.areal.export", unread=unread)
        tokenize = "stages.engines.areal.tokenize"
        return hugging_face_stages.stages(run, tokenize, TRAIN_DATA, unread, grpo, export)

    def job(self, run: Sections) -> Job:
        """Return the job of a run."""
        return Job.from_run(run)

    def derive(self, run: R) -> R:
        """Return the configuration with the contract of the checkout."""
        engine = self.job(run).engine
        if engine.contract != "auto":
            return run
        found = contract.version_of_checkout(engine.areal_home)
        return replace(run, engine=replace(engine, contract=found))

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield what AReaL would compute wrongly, ignore, or die of."""
        return rules.problems(job)

    def notes(self, job: Job) -> Iterator[str]:
        """Yield what a user should know before the run starts."""
        return rules.notes(job)

    def memory(self, job: Job) -> tuple[RoleMemory, ...]:
        """Return the memory estimate of each role for one card or worker."""
        return memory.estimate(job)

    def shortage(self, job: Job, roles: Sequence[RoleMemory], have: int) -> list[str]:
        """Return warnings about what may not fit into a card, or into this machine's `have` bytes."""
        return memory.warnings(job, roles, have)

    def load(self, job: Job, have: int) -> Load:
        """Return the work of one step, and the memory of a card or worker."""
        return memory.step_load(job, have)

    def schema_script(self, job: Job) -> tuple[str, ...]:
        """Return the script that prints the keys of GRPOConfig, for AReaL's interpreter."""
        home = job.engine.areal_home
        return (str(PROGRAMS / "grpoflow_areal" / "schema.py"), *([home] if home else []))

    def environment(self, settings: Any) -> Environment:
        """Return the versions that AReaL works with on the device of the settings."""
        group = "cpu" if settings.device == "cpu" else "npu"
        windows = (*programs.windows(VERSIONS, "all"), *programs.windows(VERSIONS, group))
        return Environment(windows, *programs.windows(VERSIONS, "machine"))


ENGINE = Areal()
