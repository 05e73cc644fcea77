"""Start of mindformers: its arguments, environment and rendered file."""

from pathlib import Path

from stages.engines.mindformers.checkout import MAIN
from stages.engines.mindformers.finetune_yaml import finetune
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.upstream import added
from stages.engines.outside import Rendered, dump, make_start

HOME_UNKNOWN = "/path/to/mindformers"
"""Placeholder in the files of run --render if mindformers.home is not set."""


def render(job: Job, paths: Paths, resume: bool) -> Rendered:
    """Return the YAML file of a run and how to start it.

    A single card runs under msrun, too: mindformers' own msrun_launcher.sh would exit with 0 at once.
    """
    home = job.mindformers.home or HOME_UNKNOWN
    start = make_start(
        job.mindformers,
        (Path(home) / MAIN, *arguments(job, paths, resume)),
        paths.root,
        env={"PYTHONUNBUFFERED": "1", "HCCL_EXEC_TIMEOUT": "7200"},
        checkouts=(home,),
        workers=job.layout.train.cards,
    )
    return Rendered(start, {paths.config.name: dump(finetune(job, paths, resume), added(job))})


def arguments(job: Job, paths: Paths, resume: bool) -> list[str]:
    """Return the arguments of run_mindformer.py, which repeat what the YAML says."""
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
