"""engine=mindspeed_rl: GRPO by Ascend/MindSpeed-RL on Ray, with its own converter and data format.

Read in this order: config.py (settings), contract.py (the checkout), job.py, files.py (what is
rendered), rules.py and verifiers.py (what is refused), memory.py, convert.py, tokenize.py, train.py (start
and end of a run), results.py (metrics and checkpoints), export.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stages import catalog
from stages.base.errors import Problem
from stages.base.graph import EXPORT_SECTIONS, Program, Stage
from stages.base.layout import ROLES
from stages.engines import programs
from stages.engines.engine import Checkout, Engine, Environment, Load, Window
from stages.engines.mindspeed_rl import contract, memory, rules, verifiers
from stages.engines.mindspeed_rl.config import CONTRACT, MindspeedRlEngine
from stages.engines.mindspeed_rl.files import RENDERED
from stages.engines.mindspeed_rl.job import Job
from stages.engines.upstream_keys import Schema
from stages.fetch.config import licence_files
from stages.grpo.config import EvaluateConfig
from stages.models.memory import GIB, RoleMemory, warnings

if TYPE_CHECKING:
    from stages.models.family import Family
    from stages.sections import Sections

R = TypeVar("R", bound="Sections")
CONVERT = Program("mindspeed_rl_convert", "stages.engines.mindspeed_rl.convert", version=1)
TOKENIZE = Program("mindspeed_rl_tokenize", "stages.engines.mindspeed_rl.tokenize", version=1)
GRPO = Program("mindspeed_rl_grpo", "stages.engines.mindspeed_rl.train", version=1)
EXPORT = Program("mindspeed_rl_export", "stages.engines.mindspeed_rl.export", version=1)


class MindspeedRl(Engine[Job]):
    """MindSpeed-RL's cli/train_grpo.py with ai_framework mindspore."""

    name = "mindspeed_rl"
    settings = MindspeedRlEngine
    programs = (TOKENIZE, CONVERT, GRPO, EXPORT)
    logs_kl = True
    checkouts = (
        Checkout(
            "mindspeed_rl",
            "engine.mindspeed_rl_home",
            contract.check,
            "a checkout of Ascend/MindSpeed-RL from 667a547 to c21465a (with MindSpore and converters)",
            recognise=contract.version_of_checkout,
        ),
    )
    assumed_contract = CONTRACT
    imports = ("ray", "hydra-core", "transformers")
    own_rewards = True
    rehearsal = "pipeline.rehearsal.mindspeed_rl"
    rendered = RENDERED

    def trains(self, family: Family) -> bool:
        """Return True for families whose shape it takes from the training YAML."""
        return family.megatron is not None

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return the graph after fetch: its own data and weights; evaluate reads the export."""
        job, size = self.job(run), run.model.weight_bytes
        home = job.engine.mindspeed_rl_home
        templates = (Path(home) / contract.TEMPLATES,) if home else ()
        reason = "engine=mindspeed_rl: its converter cuts the weights, and Megatron needs no strategy files"
        return (
            replace(
                catalog.CONVERT,
                sections=("model", "layout", "engine"),
                bytes_written=size,
                unread=_all_but("contract") | {("layout", key) for key in ("name", "generate", "reference")},
                program=CONVERT,
            ),
            replace(
                catalog.TOKENIZE,
                sections=("model", "dataset", "tokenize", "engine"),
                external=templates,
                unread=_all_but("contract", "prompt_type", "sft"),
                program=TOKENIZE,
            ),
            replace(catalog.STRATEGY, skipped=reason),
            replace(catalog.SPLIT, skipped=reason),
            replace(catalog.SFT, skipped="sft.enabled=false: mindspeed_rl starts from the fetched weights"),
            replace(
                catalog.GRPO,
                sections=("model", "layout", "tokenize", "rollout", "train", "engine", "seed"),
                inputs={"weights": "convert", "tokenize": "tokenize", "fetch": "fetch"},
                workers=job.npus,
                # per checkpoint: weights, and float32 weights with both moments; one more while it is written
                bytes_written=7 * size * (1 + run.train.keep_checkpoints),
                computes=True,
                required_files=lambda config: (catalog.RESULT, "mcore/*"),
                program=GRPO,
            ),
            replace(
                catalog.EXPORT,
                sections=(*(name for name in EXPORT_SECTIONS if name != "reward"), "layout", "engine"),
                inputs={"grpo": "grpo", "fetch": "fetch"},
                external=(*templates, *licence_files(run.model)),
                # the converter's result, the artifact, and a copy of the fetched weights
                bytes_written=3 * size,
                unread=_all_but("contract", "prompt_type", "verifier_function", "verifier_weight")
                | _all_but("sample_prompts", section="evaluate", settings=EvaluateConfig)
                | {("layout", key) for key in ("name", *ROLES)},
                program=EXPORT,
            ),
            replace(
                catalog.EVALUATE,
                inputs={**catalog.EVALUATE.inputs, "before": "fetch", "after": "export"},
                computes=True,
            ),
        )

    def job(self, run: Sections) -> Job:
        """Return the job of a run."""
        return Job.from_run(run)

    def derive(self, run: R) -> R:
        """Return the configuration with the contract of the user's checkout."""
        engine = self.job(run).engine
        if engine.contract != "auto":
            return run
        found = contract.version_of_checkout(engine.mindspeed_rl_home)
        return replace(run, engine=replace(engine, contract=found))

    def all_problems(self, run: Sections) -> Iterator[Problem]:
        """Yield the problems of a run, also those of evaluate's rewards, which are not part of the job."""
        yield from super().all_problems(run)
        yield from rules.evaluation_problems(run.reward)

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield what MindSpeed-RL would refuse, ignore silently or die of."""
        return rules.problems(job)

    def notes(self, job: Job) -> Iterator[str]:
        """Yield what a user should know before the run starts."""
        return rules.notes(job)

    def schema(self, job: Job) -> Schema | None:
        """Return the keys of the checkout's configuration classes; None without a checkout."""
        home = job.engine.mindspeed_rl_home
        return None if home is None else contract.schema(home)

    def memory(self, job: Job) -> tuple[RoleMemory, ...]:
        """Return the memory of train, generate and reference on one card."""
        return memory.estimate(job)

    def shortage(self, job: Job, roles: Sequence[RoleMemory], have: int) -> list[str]:
        """Return warnings about roles that may not fit on a card."""
        return warnings(roles, job.engine.device_memory_gib)

    def load(self, job: Job, have: int) -> Load:
        """Return the work of one step and the memory of a card."""
        iterations = job.train.num_iterations
        updates = job.train.prompts_per_step // job.mini_batch_size * iterations
        available = job.engine.device_memory_gib * GIB
        return Load(job.samples * job.seq_length * iterations, updates, available)

    def environment(self, settings: Any) -> Environment:
        """Return the versions that the contract works with."""
        cann, driver = windows("machine")
        return Environment(windows("packages"), cann, driver)

    def reward_problems(self, settings: Any) -> Iterator[Problem]:
        """Yield problems of its verifiers with its prompts."""
        return verifiers.warnings(settings)


def windows(group: str) -> tuple[Window, ...]:
    """Return the versions that work, from a group of versions.yaml."""
    return programs.windows(Path(__file__).with_name("versions.yaml"), group)


def _all_but(
    *names: str, section: str = "engine", settings: type[Any] = MindspeedRlEngine
) -> frozenset[tuple[str, str]]:
    """Return all keys of a section but these and the name."""
    return frozenset(
        (section, field.name) for field in fields(settings) if field.name not in ("name", *names)
    )


ENGINE = MindspeedRl()
