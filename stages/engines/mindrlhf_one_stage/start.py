"""How grpo_one_stage.py is started: arguments, environment and files. Pure but for writing."""

import json
import shutil
from pathlib import Path

from launch.nodes.start import Start
from stages.engines.mindrlhf.start import HOME_UNKNOWN
from stages.engines.mindrlhf_one_stage import contract, entry
from stages.engines.mindrlhf_one_stage.files import finetune, hyper_parameters, predict
from stages.engines.mindrlhf_one_stage.job import Job, Paths
from stages.engines.outside import dump


def write_configs(job: Job, paths: Paths) -> None:
    """Write the model files, the hyper-parameters and the program that installs them."""
    paths.configs.mkdir(parents=True, exist_ok=True)
    for name, values in (("finetune.yaml", finetune(job)), ("predict.yaml", predict(job))):
        (paths.configs / name).write_text(dump(values), encoding="utf-8")
    text = json.dumps(hyper_parameters(job), indent=1) + "\n"
    (paths.configs / "grpo_config.json").write_text(text, encoding="utf-8")
    shutil.copyfile(entry.__file__, paths.configs / "entry.py")


def start(job: Job, paths: Paths) -> Start:
    """Return how to start the run whose files are in `paths`."""
    engine = job.engine
    home = engine.mindrlhf_home or HOME_UNKNOWN
    script = contract.entry(Path(home), job.window)
    values = paths.configs / "grpo_config.json"
    return Start(
        program=(str(paths.configs / "entry.py"), str(script), str(values), *arguments(job, paths)),
        workers=job.layout.train.cards,
        python=engine.python,
        env={**environment(job), **engine.env},
        python_path=tuple(path for path in (home, engine.mindformers_home) if path),
        env_scripts=engine.env_scripts,
        container=engine.container,
        directory=str(paths.root / "run"),
    )


def arguments(job: Job, paths: Paths) -> list[str]:
    """grpo_one_stage.py's arguments, those of the version."""
    named = {
        "sft_path_infer": paths.configs / "predict.yaml",
        "sft_path_train": paths.configs / "finetune.yaml",
        "vocab_path": paths.tokenizer / "vocab.json",
        "merges_file_path": paths.tokenizer / "merges.txt",
        "mind_dataset_dir": paths.dataset,
        "save_ckpt_dir": paths.checkpoints,
        "use_parallel": True,
        "load_sft_checkpoint_infer": paths.weights / "generate",
        "load_sft_checkpoint_train": paths.weights / "train",
        "load_ref_checkpoint": paths.weights / "generate",
        "enable_compile_cache": False,
        "only_save_strategy": False,
        "pre_num_generations": 1,
        "pre_store_data": job.samples_per_update,  # one update's rows, for the trial that compiles the graph
    }
    known = contract.arguments(job.window)
    return [part for name, value in named.items() if name in known for part in (f"--{name}", str(value))]


def environment(job: Job) -> dict[str, str]:
    """Variables of its run_grpo.sh; prints reach the log at once, and nothing the checkout."""
    variables = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GLOG_v": "3",
        "HCCL_EXEC_TIMEOUT": "7200",
        "MS_ENABLE_LCCL": "off",
        "MS_ALLOC_CONF": "memory_tracker:False,enable_vmm:false",
    }
    if job.engine.mindformers_home is not None:
        variables["MINDFORMERS_PATH"] = job.engine.mindformers_home
    return variables
