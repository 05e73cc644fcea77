"""Rehearsal of engine=mindspeed_rl: the user's checkouts on this machine's CPU, without training."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from launch.diagnose import diagnosis
from launch.machine import checks
from launch.nodes import run as launch
from pipeline.config.sections import Config
from pipeline.errors import Problem, StageFailed
from pipeline.plan.graph import Plan
from pipeline.rehearsal.machine import missing_inputs, missing_packages, tokenizer_directory
from pipeline.rehearsal.scratch import Scratch
from stages.engines.mindspeed_rl.engine import ENGINE
from stages.engines.mindspeed_rl.files import train_config
from stages.engines.mindspeed_rl.job import Job, Paths, paths_of
from stages.engines.mindspeed_rl.rehearsal import cpu
from stages.engines.mindspeed_rl.tokenize import PREFIX, data_files, sequences
from stages.engines.outside import dump
from stages.engines.rehearsal import Proof
from stages.weights.tensors import load

STOP = "mindspeed_rl_msadapter"
"""Name of the failure (launch.diagnose.failures) that ends train_grpo.py on a machine without MSAdapter."""
CONVERTER_PACKAGES = ("torch", "transformers", "numpy", "peft")
"""Packages of the converter. Without peft convert_ckpt.py ends with "Unable to load loader plugin"."""
PACKAGES = (*CONVERTER_PACKAGES, "datasets", "hydra-core", "tensordict", "ray")
INSTALL = "install upstream's requirements.txt and PyTorch for the CPU; no NPU package is needed"
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
    engine = Job.from_run(plan.config).engine
    yield from missing_inputs(plan, ENGINE)
    for setting, python, packages in (
        ("engine.python", engine.python, PACKAGES),
        ("engine.convert_python", engine.convert_python or engine.python, CONVERTER_PACKAGES),
    ):
        yield from missing_packages(setting, python, [(name, "", "") for name in packages], INSTALL)


def rehearse(plan: Plan, stages: Scratch) -> Iterator[Proof]:
    """Validate the configuration, preprocess, convert and export weights, start train_grpo.py."""
    config = plan.config
    tokenizer = tokenizer_directory(plan)
    assert tokenizer is not None  # refusals
    stages.display.print_line("validate_rl_args and Megatron's validate_args of the run's own files …")
    yield _validated(config, tokenizer, stages.root)
    small = cpu.shrink(config.plain(), stages.root / "model")
    stages.write_model(plan, small)
    planned = stages.plan(small)
    stages.build_until(planned, "convert")
    rows = sequences(data_files(stages.build(planned, "tokenize") / PREFIX)[1])
    dataset, template = planned.config.dataset, Job.from_run(planned.config).engine.prompt_type
    data = f"{rows} prompts of {dataset.path or dataset.name} in template {template}, read back"
    yield Proof("data through preprocess_data.py", "proven", data)
    stages.build(planned, "convert")
    yield _converted_back(planned, stages)
    yield _started(stages.plan(cpu.on_single_card(small)), stages)
    yield from UNPROVEN


def _validated(config: Config, tokenizer: Path, scratch: Path) -> Proof:
    """Validate with upstream's code the configurations of a new and of a resumed run of the full size."""
    run = Job.from_run(config)
    engine = run.engine
    assert engine.mindspeed_rl_home is not None  # refusals
    directories = [scratch / "configs" / name for name in ("new", "resumed")]
    for directory, resume in zip(directories, (False, True), strict=True):
        directory.mkdir(parents=True)
        values = train_config(run, Paths(directory, tokenizer, paths_of(directory).weights), resume)
        (directory / "train.yaml").write_text(dump(values), encoding="utf-8")
    nodes = len(launch.nodes_of(run.npus, config.launcher))
    python = Path(str(checks.interpreter(engine.python)))
    results = cpu.validate(python, Path(engine.mindspeed_rl_home), directories, nodes, engine.env)
    claim = "configuration accepted by upstream"
    for result in results:
        if error := result.get("error"):
            return Proof(claim, "failed", error.strip().splitlines()[-1])
    roles = ", ".join(results[0]["roles"])
    accepted = "Hydra, parse_training_config, Megatron's validate_args"
    return Proof(claim, "proven", f"{engine.contract}: {accepted} for {roles}; a new and a resumed run")


def _converted_back(planned: Plan, stages: Scratch) -> Proof:
    """Export the converted weights, and compare them with the random model that was fetched."""
    exported = stages.build(planned, "export", grpo="convert")  # a trained directory has the same layout
    old, new = load(stages.build(planned, "fetch")), load(exported)
    layout = planned.config.layout.train
    claim = f"weights there and back as tp{layout.model_parallel} pp{layout.pipeline_stage}"
    differ = [name for name in old if name not in new or not np.array_equal(old[name], new[name])]
    if differ or old.keys() != new.keys():
        return Proof(claim, "failed", f"not equal after the way there and back: {', '.join(differ[:3])}")
    layers = planned.config.model.num_hidden_layers
    return Proof(claim, "proven", f"{len(old)} tensors of a random model of {layers} layers, bit for bit")


def _started(planned: Plan, stages: Scratch) -> Proof:
    """Run train_grpo.py on Ray; it must end with the failure STOP and no earlier one."""
    claim = "train_grpo.py starts"
    stages.build(planned, "convert")
    stages.build(planned, "tokenize")
    try:
        stages.build(planned, "grpo")
    except StageFailed as failed:
        first = diagnosis.diagnose(failed.log.parent).first
        if first is None or first.failure is None:
            return Proof(claim, "failed", f"{failed.cause} (log: {failed.log})")
        if first.failure.name != STOP:
            return Proof(claim, "failed", f"{first.cause}; {first.remedy} (log: {failed.log})")
        reached = (
            "Ray, placement, actors, the data set and initialize_megatron's beginning, on one card that "
            "Ray counts; it ends where MSAdapter is required, as on every machine without NPUs"
        )
        return Proof(claim, "proven", reached)
    return Proof(claim, "failed", "it ended without an error, and no machine without NPUs can train")
