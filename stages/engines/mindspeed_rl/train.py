"""Stage grpo of engine=mindspeed_rl: cli/train_grpo.py on a Ray cluster."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.checks import demand
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindspeed_rl.contract import TRAIN
from stages.engines.mindspeed_rl.files import VARIABLES, runtime_env, train_config
from stages.engines.mindspeed_rl.job import CONFIG_NAME, Job, home_of, paths_of
from stages.engines.mindspeed_rl.results import (
    DRIVER_LOG,
    TrainWatcher,
    checkpoints_of_run,
    import_weights,
)
from stages.engines.mindspeed_rl.rules import problems
from stages.engines.mindspeed_rl.tokenize import PREFIX, data_files
from stages.engines.model_directory import copy_model
from stages.engines.outside import (
    REMEDY,
    Rendered,
    Report,
    dump,
    import_run,
    is_new,
    make_start,
    read_start,
    require_line,
    write_start,
)
from stages.grpo.metrics import read_rows


def render(
    config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path, resume: bool = False
) -> Rendered:
    """Return the YAML files and the start of a run; a resumed run differs only in its YAML."""
    job, paths = Job.from_config(config), paths_of(work)
    engine, home = job.engine, home_of(job.engine)
    files = {
        f"configs/{CONFIG_NAME}.yaml": dump(train_config(job, paths, resume), engine.upstream),
        "configs/runtime_env.yaml": dump(runtime_env(job)),
    }
    command = (
        Path(home) / TRAIN,
        f"--config-path={paths.configs}",
        f"--config-name={CONFIG_NAME}",
        f"hydra.run.dir={work / 'hydra'}",
    )
    start = make_start(engine, command, work, VARIABLES, [home], workers=job.npus, ray=engine.cluster())
    return Rendered(start, files)


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> TrainWatcher:
    """Follow a run."""
    return TrainWatcher(logs, work, Job.from_config(config), report)


def prepare(context: Context) -> None:
    """Write all files of the run into context.work, or those that resume an interrupted run."""
    job, paths = Job.from_config(context.config), paths_of(context.work)
    demand(problems(job))
    copy_model(context.inputs["fetch"], paths.tokenizer)
    copy_model(context.inputs["weights"] / "mcore", paths.weights)
    _link_data(context.inputs["tokenize"] / PREFIX, paths.data.parent)
    iteration = checkpoints_of_run(paths.checkpoints, job.layout.train).prepare_resume(
        _last_iteration(job, context.work)
    )
    rendered = render(context.config, context.inputs, context.work, resume=iteration is not None)
    write_start(context.work, rendered, paths.checkpoints, resumed=iteration)
    context.progress(0, 1, "starts" if iteration is None else f"resumes after iteration {iteration}", "")


def _link_data(prefix: Path, target: Path) -> None:
    """Link the training data, because PromptDataset writes an index next to it.

    Source: mindspeed_rl/datasets/utils.py, _build_index_mappings.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in data_files(prefix):
        (target / file.name).symlink_to(file.resolve())


def _last_iteration(job: Job, work: Path) -> int:
    """Return the last iteration that a run may resume from.

    If the final one was saved, but its metrics were not read before the kill, it is repeated: otherwise
    upstream would log nothing that proves the end.
    """
    rows, steps = read_rows(work / "metrics.jsonl"), job.train.steps
    return steps if rows and rows[-1]["step"] == steps else steps - 1


def collect(context: Context) -> None:
    """Check that the run finished; import weights, metrics and configuration.

    The proof is the last iteration in the log and a new complete checkpoint, unless the run had finished
    before it was killed.
    """
    job, record = Job.from_config(context.config), read_start(context.work)
    saved, steps = checkpoints_of_run(paths_of(context.work).checkpoints, job.layout.train), job.train.steps
    directory = saved.directory(steps)
    if record["resumed"] != steps:
        require_line(Path(record["logs"]) / DRIVER_LOG, f"iteration: {steps} / {steps} |")
        tracked = saved.tracked()
        if tracked != steps or not is_new(saved.tracker, record["earlier"]):
            raise InputError(saved.tracker, tracked, f"must be new and name iteration {steps}", REMEDY)
    if fault := saved.defect(directory):
        raise InputError(directory, None, f"is no complete checkpoint: {fault}", REMEDY)
    import_weights(directory, context.output / "mcore", job.layout.train)
    import_run(context, record["resumed"], directory.name, job.engine.contract)
