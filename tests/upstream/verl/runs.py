"""Runs of the real verl on a CPU, started by launch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from launch.nodes import run as nodes_run
from launch.nodes.start import Ray, Start
from launch.process.tree import JOB_VARIABLE
from tests.launch.launchers import local_launcher

HERE = Path(__file__).parent
PLUGIN = Path(__file__).parents[3] / "stages" / "engines" / "verl" / "plugin"
STEPS, EPOCHS, MAX_TOKENS, BETA, LEARNING_RATE = 3, 2, 8, 0.05, 3e-3
PROMPTS, GENERATIONS = 4, 4
RAY_OPTIONS = ("--num-cpus=12", "--object-store-memory=100000000", "--include-dashboard=false")
ENVIRONMENT = {
    "VERL_USE_EXTERNAL_MODULES": "grpoflow_verl_cpu",
    "VERL_PLATFORM": "grpoflow_cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",  # Ray's 15 makes starts several times slower on a busy machine
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
FP32 = "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}"
OVERRIDES = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": PROMPTS,
    "data.max_prompt_length": 16,
    "data.max_response_length": MAX_TOKENS,
    "data.seed": 0,
    "data.dataloader_num_workers": 0,
    "actor_rollout_ref.model.use_remove_padding": "false",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "false",
    "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    "actor_rollout_ref.actor.strategy": "fsdp2",
    "actor_rollout_ref.actor.optim.lr": LEARNING_RATE,
    "actor_rollout_ref.actor.optim.weight_decay": 0,
    "actor_rollout_ref.actor.ppo_epochs": EPOCHS,
    "actor_rollout_ref.actor.ppo_mini_batch_size": PROMPTS,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.actor.use_torch_compile": "false",
    "actor_rollout_ref.actor.use_kl_loss": "true",
    "actor_rollout_ref.actor.kl_loss_coef": BETA,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile": "false",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision": FP32,
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile": "false",
    "+actor_rollout_ref.ref.fsdp_config.mixed_precision": FP32,
    "actor_rollout_ref.rollout.name": "hf",
    "actor_rollout_ref.rollout.dtype": "float32",
    "actor_rollout_ref.rollout.n": GENERATIONS,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.agent.num_workers": 1,
    "actor_rollout_ref.rollout.agent.agent_loop_config_path": PLUGIN / "grpoflow_verl_cpu/agent_loops.yaml",
    "trainer.v1.sampler.custom_sampler.path": "pkg://grpoflow_verl_cpu.ordered",
    "trainer.v1.sampler.custom_sampler.name": "OrderedReplayBuffer",
    "reward.num_workers": 1,
    "reward.custom_reward_function.path": HERE / "reward.py",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    "trainer.device": "cpu",
    "trainer.nnodes": 1,
    "trainer.total_training_steps": STEPS,
    "trainer.total_epochs": 100,
    "trainer.save_freq": 1,
    "trainer.test_freq": -1,
    "trainer.val_before_train": "false",
    "trainer.logger": "[file]",
}
ALGORITHMS: dict[str, dict[str, object]] = {
    "grpo": {"loss_agg_mode": "seq-mean-token-mean"},
    "dapo": {"loss_agg_mode": "token-mean", "clip_ratio_high": 0.28},
    "dr_grpo": {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": MAX_TOKENS},
    "gspo": {
        "loss_agg_mode": "seq-mean-token-mean",
        "policy_loss.loss_mode": "gspo",
        "clip_ratio_low": 3e-4,
        "clip_ratio_high": 4e-4,
    },
}


@dataclass(frozen=True)
class Run:
    """A run of verl."""

    directory: Path
    attempt: int

    @property
    def logs(self) -> Path:
        """Directory of the attempt's logs and metrics."""
        return self.directory / f"attempt_{self.attempt}"

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of each step."""
        lines = (self.logs / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["data"] for line in lines]

    def completions(self) -> list[list[tuple[Any, ...]]]:
        """Return prompt, completion and score of each step, without the random ids of groups."""
        files = sorted((self.directory / "rollouts").glob("*.jsonl"), key=lambda file: int(file.stem))
        rows = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
        return [sorted((row["input"], row["output"], row["score"]) for row in step) for step in rows]

    def shards(self, step: int = STEPS) -> dict[str, str]:
        """Return the digests of weights and optimizer state, by file; pickled objects differ between runs."""
        actor = self.directory / "checkpoints" / f"global_step_{step}" / "actor"
        files = sorted(actor.glob("model_*.pt")) + sorted(actor.glob("optim_*.pt"))
        return {file.name: tensors_digest(file) for file in files}


def tensors_digest(file: Path) -> str:
    """Return the digest of all tensors of a file of torch.save."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(file) as archive:
        tensors = sorted(name for name in archive.namelist() if "/data/" in name)
        assert tensors
        for name in tensors:
            digest.update(archive.read(name))
    return digest.hexdigest()


class Sessions:
    """Processes of a job. Ray's workers overwrite their environment, but stay in the job's session."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._sessions: set[int] = set()

    def look(self) -> None:
        """Remember the job's session."""
        if not self._sessions:
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    if process.environ().get(JOB_VARIABLE, "").split("@")[0] == self._job:
                        self._sessions.add(os.getsid(process.pid))

    def living(self) -> list[psutil.Process]:
        """Return the processes that have not ended."""
        result = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) in self._sessions and process.status() != psutil.STATUS_ZOMBIE:
                    result.append(process)
        return result

    def find(self, matches: Callable[[list[str]], bool]) -> list[psutil.Process]:
        """Return the processes with such a command line."""
        result = []
        for process in self.living():
            with contextlib.suppress(psutil.Error):
                line = process.cmdline()
                if line and matches(line):
                    result.append(process)
        return result

    def assert_empty(self, seconds: float) -> None:
        """Check that all processes end in time."""
        assert self._sessions
        deadline = time.monotonic() + seconds
        while left := self.living():
            assert time.monotonic() < deadline, [process.name() for process in left]
            time.sleep(0.1)


@dataclass(frozen=True)
class Verl:
    """verl's interpreter, a model and prompts."""

    python: Path
    data: Path

    def train(
        self,
        directory: Path,
        workers: int = 1,
        overrides: dict[str, object] | None = None,
        attempt: int = 1,
        act: Callable[[Sessions], None] = lambda sessions: None,
    ) -> Run:
        """Run main_ppo to its end on a Ray cluster of its own; nothing of it may be left, however it ends."""
        run, sessions = Run(directory, attempt), Sessions(str(directory))
        run.logs.mkdir(parents=True)
        start = Start(
            program=("-m", "verl.trainer.main_ppo", *self.words(directory, workers, overrides or {})),
            workers=workers,
            python=str(self.python),
            env={
                **ENVIRONMENT,
                "VERL_FILE_LOGGER_PATH": str(run.logs / "metrics.jsonl"),
                "HF_DATASETS_CACHE": str(directory / "cache"),
            },
            python_path=(str(PLUGIN),),
            env_scripts=(),
            container=(),
            directory=str(directory / "work"),
            ray=Ray(None, None, RAY_OPTIONS, 300.0),
        )

        def poll() -> None:
            sessions.look()
            act(sessions)

        try:
            nodes_run.run(
                start,
                job=str(directory),
                directory=directory / "launch",
                logs=run.logs,
                launcher=local_launcher(),
                on_poll=poll,
                silent_s=lambda: 0.0,
                silence_timeout_s=None,
            )
        finally:
            sessions.assert_empty(20.0)
        return run

    def words(self, directory: Path, workers: int, overrides: dict[str, object]) -> list[str]:
        """Return verl's overrides of a run."""
        keys = {
            **OVERRIDES,
            "actor_rollout_ref.model.path": self.data / "model",
            "data.train_files": self.data / "prompts.parquet",
            "data.val_files": self.data / "prompts.parquet",
            "actor_rollout_ref.rollout.tensor_model_parallel_size": workers,
            "trainer.n_gpus_per_node": workers,
            "trainer.default_local_dir": directory / "checkpoints",
            "trainer.rollout_data_dir": directory / "rollouts",
            "hydra.run.dir": directory / "hydra",
            **overrides,
        }
        return [f"{key}={value}" for key, value in keys.items()]


def algorithm(name: str) -> dict[str, object]:
    """Return the overrides of one of ALGORITHMS."""
    actor = {f"actor_rollout_ref.actor.{key}": value for key, value in ALGORITHMS[name].items()}
    return {**actor, "algorithm.norm_adv_by_std_in_grpo": str(name != "dr_grpo").lower()}
