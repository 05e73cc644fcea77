"""How mindformers is started: arguments, environment and the rendered file. Pure but for writing."""

from pathlib import Path

from launch.nodes.start import Start
from stages.engines.mindformers.checkout import MAIN
from stages.engines.mindformers.finetune_yaml import finetune
from stages.engines.mindformers.job import Job, Paths
from stages.engines.outside import dump

HOME_UNKNOWN = "/path/to/mindformers"
"""Stands in --dry-run's files where mindformers.home is not set."""


def write_config(job: Job, paths: Paths, resume: bool) -> None:
    """Write the YAML file."""
    paths.root.mkdir(parents=True, exist_ok=True)
    paths.config.write_text(dump(finetune(job, paths, resume)), encoding="utf-8")


def start(job: Job, paths: Paths, resume: bool) -> Start:
    """Return how to start the run whose files are in `paths`.

    One card runs under msrun, too: mindformers' own msrun_launcher.sh ends with 0 then, having run nothing.
    """
    settings = job.mindformers
    home = settings.home or HOME_UNKNOWN
    return Start(
        program=(str(Path(home) / MAIN), *arguments(job, paths, resume)),
        workers=job.layout.cards,
        python=settings.python,
        env={"PYTHONUNBUFFERED": "1", "HCCL_EXEC_TIMEOUT": "7200", **settings.env},
        python_path=(home,),
        env_scripts=settings.env_scripts,
        container=settings.container,
        directory=str(paths.root / "run"),
    )


def arguments(job: Job, paths: Paths, resume: bool) -> list[str]:
    """run_mindformer.py's arguments; they override the YAML, which says the same."""
    named = {
        "config": paths.config,
        "run_mode": "finetune",
        "use_parallel": job.parallel,
        "load_checkpoint": paths.start,
        "auto_trans_ckpt": job.parallel and not resume,
        "resume_training": resume,
        "train_dataset_dir": paths.dataset,
        "output_dir": paths.output,
        "seed": job.seed,
    }
    return [part for name, value in named.items() for part in (f"--{name}", str(value))]
