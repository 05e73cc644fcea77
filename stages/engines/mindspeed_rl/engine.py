"""engine=mindspeed_rl: GRPO by Ascend/MindSpeed-RL on Ray, with its own converter and data format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.graph import EXPORT_SECTIONS, Program, Stage
from stages.base.layout import ROLES
from stages.base.reader import as_text
from stages.engines import tables, upstream
from stages.engines.declaration import Declaration, Declared
from stages.engines.engine import Checkout, Load
from stages.engines.mindspeed_rl import contract, memory, rules, verifiers
from stages.engines.mindspeed_rl.config import VERSIONS, MindspeedRlEngine
from stages.engines.mindspeed_rl.job import Job
from stages.engines.mindspeed_rl.train_yaml import FIELDS
from stages.engines.programs import known
from stages.fetch.config import licence_files
from stages.grpo.config import EvaluateConfig
from stages.models.memory import GIB, warnings

if TYPE_CHECKING:
    from stages.sections import Sections

CONVERT = Program("mindspeed_rl_convert", "stages.engines.mindspeed_rl.convert", version=1)
TOKENIZE = Program("mindspeed_rl_tokenize", "stages.engines.mindspeed_rl.tokenize", version=4)
GRPO = Program("mindspeed_rl_grpo", "stages.engines.mindspeed_rl.train", version=4)
EXPORT = Program("mindspeed_rl_export", "stages.engines.mindspeed_rl.export", version=3)


def stages(run: Sections) -> tuple[Stage, ...]:
    """Return the graph after fetch: MindSpeed-RL's own data and weights; evaluate reads the export."""
    job, size = Job.from_run(run), run.model.weight_bytes
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
            corrections=("warm-up over fewer updates",) if run.train.warmup_steps else (),
            program=GRPO,
        ),
        replace(
            catalog.EXPORT,
            sections=(*(name for name in EXPORT_SECTIONS if name != "reward"), "layout", "engine"),
            inputs={"grpo": "grpo", "fetch": "fetch"},
            external=(*templates, *licence_files(run.model)),
            bytes_written=3 * size,  # the converter's result, the artifact, and a copy of the fetched weights
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


def derive(values: dict[str, Any]) -> None:
    """Fill in the contract of the user's checkout."""
    engine = values["engine"]
    for key in ("convert_env", "runtime_env"):
        engine[key] = {name: as_text(value) for name, value in engine[key].items()}
    if engine["contract"] == "auto":
        engine["contract"] = contract.version_of_checkout(engine["mindspeed_rl_home"])


def notes(job: Job) -> Iterator[str]:
    """Yield notes about the checkout, the layout of the reference, the loss and the learning rate."""
    engine, train = job.engine, job.train
    home = engine.mindspeed_rl_home
    if home is not None and (defect := contract.broken_port(home)):
        yield f"engine.mindspeed_rl_home: {'; '.join(defect)}"
    applies = {
        "integrated": engine.use_integrated_worker,
        "micro_batches": job.layout.train.micro_batch_num != job.layout.train.pipeline_stage,
        "means": engine.micro_batch_size > 1,
        "schedule": train.schedule != "constant" and job.decay_steps < train.steps,
    }
    yield from tables.notes(Path(__file__).with_name("notes.yaml"), job, applies)
    yield from upstream.notes("engine", engine.upstream)


def load(run: Sections) -> Load:
    """Return the work of one step and the memory of a card."""
    job, iterations = Job.from_run(run), run.train.num_iterations
    updates = run.train.prompts_per_step // job.mini_batch_size * iterations
    available = job.engine.device_memory_gib * GIB
    return Load(job.samples * job.seq_length * iterations, updates, available)


def _all_but(
    *names: str, section: str = "engine", settings: type[Any] = MindspeedRlEngine
) -> frozenset[tuple[str, str]]:
    """Return all keys of a section but these and the name."""
    return frozenset(
        (section, field.name) for field in fields(settings) if field.name not in ("name", *names)
    )


ENGINE = Declared(
    Declaration(
        name="mindspeed_rl",
        trains=lambda family: family.megatron is not None,
        rehearsal="pipeline.rehearsal.mindspeed_rl",
        stages=stages,
        rules=rules.PLACED,
        subject=lambda run, cards_per_node: rules.Placed(
            Job.from_run(run), -(-Job.from_run(run).npus // cards_per_node), run.reward
        ),
        required_files={"grpo": lambda config: (catalog.RESULT, "mcore/*")},
        programs=(TOKENIZE, CONVERT, GRPO, EXPORT),
        checkouts=(
            Checkout(
                "mindspeed_rl",
                "engine.mindspeed_rl_home",
                contract.check,
                "a checkout of Ascend/MindSpeed-RL from 667a547 to before 749829d (with MindSpore and"
                " converters), or 05a90d7",
                recognise=contract.version_of_checkout,
            ),
            Checkout(
                "mindspeed_llm",
                "engine.mindspeed_llm_home",
                contract.check_converter,
                "a checkout of Ascend/MindSpeed-LLM at a2c0733b9; contract 05a90d7 has no converter of"
                " its own",
                needed_by=("05a90d7",),
            ),
        ),
        known={
            version: known(version, f"machine_{version}", FIELDS / "versions.yaml") for version in VERSIONS
        },
        imports=("ray", "hydra-core", "transformers"),
        derive=derive,
        notes=lambda run: notes(Job.from_run(run)),
        memory=lambda run: memory.estimate(Job.from_run(run)),
        shortage=lambda run, roles, have: warnings(roles, Job.from_run(run).engine.device_memory_gib),
        load=lambda run, have: load(run),
        reward_problems=verifiers.warnings,
    )
)
