"""Rehearsal of engine=mindspeed_rl: the user's checkouts on this machine's CPU, without training."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from launch.diagnose import diagnosis
from launch.machine import checks
from launch.nodes import run as launch
from pipeline.config.sections import Config
from pipeline.errors import Problem, StageFailed
from pipeline.plan.graph import Plan
from pipeline.rehearsal import Report
from pipeline.rehearsal.machine import missing_inputs, tokenizer_directory
from pipeline.rehearsal.scratch import Scratch
from stages.base.context import Context
from stages.engines.mindspeed_rl import contract, export
from stages.engines.mindspeed_rl.config import MindspeedRlEngine
from stages.engines.mindspeed_rl.engine import ENGINE, job
from stages.engines.mindspeed_rl.job import Job, Paths
from stages.engines.mindspeed_rl.rehearsal import locations, shrink
from stages.engines.mindspeed_rl.rehearsal.validation import validate
from stages.engines.mindspeed_rl.tokenize import PREFIX, data_files, sequences
from stages.engines.mindspeed_rl.train import paths_of
from stages.engines.mindspeed_rl.train_yaml import train_config
from stages.engines.outside import dump
from stages.engines.rehearsal import Proof, moved
from stages.weights.tensors import load

STOP = "mindspeed_rl_msadapter"
"""Name of the failure (launch.diagnose.failures) that ends train_grpo.py on a machine without MSAdapter."""
CONVERTER_PACKAGES = ("torch", "transformers", "numpy", "peft")
"""Packages of the converter. Without peft convert_ckpt.py ends with "Unable to load loader plugin"."""
PACKAGES = (*CONVERTER_PACKAGES, "datasets", "hydra-core", "tensordict", "ray")
UNPROVEN = (
    Proof(
        "training",
        "unproven",
        "no iteration was rehearsed: the MindSpore back end runs on MSAdapter and NPUs only, and the PyTorch "
        "one asks for CUDA or an NPU, its operators and a real vLLM (train_grpo.py, initialize_megatron)",
    ),
    Proof("checkpoints of training, and going on from them", "unproven", "no iteration, no checkpoint"),
    Proof("rollout by vLLM, rewards of its verifiers", "unproven", "vLLM and NPUs are hidden here"),
    Proof("layout on many cards, bfloat16, HCCL, memory", "unproven", "one CPU"),
)


def refusals(plan: Plan) -> Iterator[Problem]:
    """Yield the problems of checkouts, interpreters and tokenizer."""
    config = plan.config
    assert isinstance(config.engine, MindspeedRlEngine)
    engine = config.engine
    yield from missing_inputs(plan, ENGINE)
    if engine.mindspeed_rl_home is not None:
        yield from contract.converter(engine) if engine.mindspeed_llm_home else ()
        assert engine.contract != "auto"
        yield from moved(
            Path(engine.mindspeed_rl_home), "engine.mindspeed_rl_home", locations.LOCATIONS, engine.contract
        )
    yield from _missing_packages("engine.python", engine.python, PACKAGES)
    if engine.convert_python is not None:
        yield from _missing_packages("engine.convert_python", engine.convert_python, CONVERTER_PACKAGES)


def _missing_packages(setting: str, python: str | None, packages: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem if an interpreter lacks packages of upstream's requirements."""
    chosen = checks.interpreter(python)
    versions = None if chosen is None else checks.versions(chosen, packages)
    missing = [name for name in packages if not (versions or {}).get(name)]
    if missing:
        rule = f"must be an interpreter with upstream's requirements.txt; it lacks {', '.join(missing)}"
        remedy = (
            "an environment with upstream's requirements and PyTorch for the CPU; no NPU package is needed"
        )
        yield Problem(setting, chosen or python, rule, remedy)


def rehearse(plan: Plan, scratch: Path, report: Report) -> Iterator[Proof]:
    """Validate the configuration, preprocess, convert and export weights, start train_grpo.py."""
    config, stages = plan.config, Scratch(scratch, report)
    tokenizer = tokenizer_directory(plan)
    assert tokenizer is not None  # refusals
    report("validate_rl_args and Megatron's validate_args of the run's own files …")
    yield _validated(config, tokenizer, scratch)
    model = scratch / "model"
    small = shrink.shrink(config.plain(), model)
    stages.write_model(plan, small)
    planned = stages.plan(small)
    stages.build(planned, "fetch")
    stages.build(planned, "fetch_dataset")
    yield _preprocessed(planned, stages)
    stages.build(planned, "convert")
    report("export …")
    yield _converted_back(planned, stages, scratch)
    yield _started(stages.plan(shrink.on_single_card(small)), stages)
    yield from UNPROVEN


def _validated(config: Config, tokenizer: Path, scratch: Path) -> Proof:
    """Validate with upstream's code the configurations of a new and of a resumed run of the full size."""
    run, engine = job(config), config.engine
    assert isinstance(engine, MindspeedRlEngine) and engine.mindspeed_rl_home is not None
    directories = []
    for name, resume in (("begins", False), ("goes_on", True)):
        directory = scratch / "configs" / name
        directory.mkdir(parents=True)
        files = paths_of(directory)
        values = train_config(run, Paths(files.root, tokenizer, files.weights), resume)
        (directory / "train.yaml").write_text(dump(values), encoding="utf-8")
        directories.append(directory)
    nodes = len(launch.nodes_of(run.npus, config.launcher))
    python = str(checks.interpreter(engine.python))
    results = validate(python, Path(engine.mindspeed_rl_home), directories, nodes, engine.env)
    what = "configuration accepted by upstream"
    for directory in directories:
        if error := results[str(directory)].get("error"):
            return Proof(what, "failed", error.strip().splitlines()[-1])
    return Proof(what, "proven", _arguments(run, results[str(directories[0])]["roles"]))


def _arguments(run: Job, roles: Mapping[str, Mapping[str, Any]]) -> str:
    actor = roles["actor"]
    degrees = [
        actor[f"{name}_parallel_size"] for name in ("data", "tensor_model", "pipeline_model", "context")
    ]
    return (
        f"{run.version}: Hydra, parse_training_config, Megatron's validate_args for {', '.join(roles)}; "
        f"{actor['world_size']} cards as dp{degrees[0]} tp{degrees[1]} pp{degrees[2]} cp{degrees[3]}, "
        f"{actor['num_layers']} layers, rows of {actor['seq_length']}; a beginning and a resumed run"
    )


def _preprocessed(planned: Plan, stages: Scratch) -> Proof:
    tokenized = stages.build(planned, "tokenize")
    rows = sequences(data_files(tokenized / PREFIX)[1])
    dataset, engine = planned.config.dataset, planned.config.engine
    assert isinstance(engine, MindspeedRlEngine)
    data = f"{rows} prompts of {dataset.path or dataset.name} in template {engine.prompt_type}, read back"
    return Proof("data through preprocess_data.py", "proven", data)


def _converted_back(planned: Plan, stages: Scratch, scratch: Path) -> Proof:
    """Export the converted weights, and compare them with the random model that was fetched."""
    inputs = {name: stages.store.path(planned.spec(stage).key) for name, stage in _BACK.items()}
    work, output = scratch / "export" / "work", scratch / "export" / "output"
    work.mkdir(parents=True)
    output.mkdir()
    context = Context("export", planned.config.plain(), inputs, output, work, work / "progress.jsonl")
    export.prepare(context)
    logs = scratch / "export" / "logs"
    logs.mkdir()
    launch.run(
        export.render(context.config, inputs, work).start,
        job=str(work),
        directory=scratch / "export" / "launch",
        logs=logs,
        launcher=planned.config.launcher,
        on_poll=lambda: None,
        silent_s=lambda: 0.0,
        silence_timeout_s=None,
    )
    export.collect(context)
    old, new = load(inputs["fetch"]), load(output)
    layout = planned.config.layout.train
    what = f"weights there and back as tp{layout.model_parallel} pp{layout.pipeline_stage}"
    differ = [name for name in old if name not in new or not np.array_equal(old[name], new[name])]
    if differ or old.keys() != new.keys():
        return Proof(what, "failed", f"not equal after the way there and back: {', '.join(differ[:3])}")
    config = planned.config.model
    equal = f"{len(old)} tensors of a random model of {config.num_hidden_layers} layers, bit for bit"
    return Proof(what, "proven", equal)


_BACK = {"grpo": "convert", "fetch": "fetch"}
"""Inputs of export; a converted directory replaces a trained one, which has the same layout."""


def _started(planned: Plan, stages: Scratch) -> Proof:
    """Run train_grpo.py on Ray; it must end with the failure STOP and no earlier one."""
    what = "train_grpo.py starts"
    stages.build(planned, "convert")
    stages.build(planned, "tokenize")
    try:
        stages.build(planned, "grpo")
    except StageFailed as failed:
        first = diagnosis.diagnose(failed.log.parent).first
        if first is not None and first.failure is not None and first.failure.name == STOP:
            reached = (
                "Ray, placement, actors, the data set and initialize_megatron's beginning, on one card that "
                "Ray counts; it ends where MSAdapter is wanted, as on every machine without NPUs"
            )
            return Proof(what, "proven", reached)
        message = (
            f"{first.cause}; {first.remedy}"
            if first is not None and first.failure is not None
            else failed.cause
        )
        return Proof(what, "failed", f"{message} (log: {failed.log})")
    return Proof(what, "failed", "it ended without an error, and no machine without NPUs can train")
