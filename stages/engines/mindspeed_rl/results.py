"""Results of a MindSpeed-RL run: metrics and completions in the driver's log, and Megatron's checkpoints.

Log: one line per iteration, `iteration: 3 / 500 | key : value | key : value`, after Ray's `(train pid=…)` and
a time. Scoring processes print one sample per batch: question, answer and label, each after a line that
begins with `>>>>>>>>>>`, between lines of equal signs; each may have several lines.
Checkpoints: latest_checkpointed_iteration.txt (the tracker), written last, and
iter_0000010/mp_rank_TT[_PPP]/ with model_optim_rng.pt and, with the distributed optimizer, distrib_optim.pt.
A converter writes the weights alone, as iteration 1.
Source: Ascend/MindSpeed-RL at 667a547 and 05a90d7: mindspeed_rl/utils/loggers.py,
trainer/grpo_trainer_hybrid.py, trainer/utils/compute_utils.py, models/rule_verifier.py
(compute_verifier_score); docs/zh/features/log_metrics.md. NVIDIA/Megatron-LM core_v0.12.1,
megatron/training/checkpointing.py; Ascend/MindSpeed-LLM a2c0733b, tasks/checkpoint/models.py:1030.
"""

import functools
import re
import zipfile
from functools import partial
from pathlib import Path

from stages.base.errors import InputError
from stages.base.layout import RoleLayout
from stages.engines.mindspeed_rl.job import Job
from stages.engines.outside import NUMBER, Report, Row, StepWatcher, link_or_copy
from stages.engines.tracked_checkpoints import TRACKER, TrackedCheckpoints

NAMES = {
    "grpo/rewards/mean": "reward",  # 667a547, and a reward model's
    "grpo/rewards/max": "reward_max",
    "grpo/rewards/min": "reward_min",
    "response_length/mean": "completion_length",
    "response_length/max": "completion_length_max",
    "prompt_length/mean": "prompt_length",
    "actor/pg_loss": "loss",
    "actor/kl_loss": "kl",
    "actor/entropy": "entropy",
    "actor/pg_clipfrac": "clip_fraction",
    "actor/grad_norm": "grad_norm",
    "grad_norm": "grad_norm",  # 667a547
    "actor/lr": "lr",
    "grpo/lr": "lr",  # 667a547
    "timing/rollout": "rollout_s",
    "timing/rule_reward": "reward_s",
    "timing/reference_model": "reference_s",
    "timing/update": "train_s",
    "timing/all": "step_s",
}
"""Upstream's metric -> grpoflow's (stages/grpo/metrics.py)."""
SCORES = {
    "grpo/score/mean": "reward",
    "grpo/score/max": "reward_max",
    "grpo/score/min": "reward_min",
}
"""The sum of the weighted verifiers, which is all that 05a90d7 logs of rewards."""
RATES = {
    "e2e_tps": "tokens_per_s",
    "vllm_tps": "rollout_tokens_per_s",
    "update_tps": "train_tokens_per_s",
}
"""Metrics per card."""
DRIVER_LOG = "worker_0.log"
"""Log of the driver on the head node, to which Ray forwards its workers' output."""
_ITERATION = re.compile(r"\biteration: (\d+) / (\d+) \|(.*)")
_PAIR = re.compile(rf"([\w./-]+) : ({NUMBER})(?=\s|\||$)")
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
"""Colours of a worker's name in Ray's output."""
_VERIFIER = re.compile(r"(?:grpo/)?(\w+)_rewards/mean")  # with grpo/ in 667a547 (rule_verifier.py:169)
_PROCESS = re.compile(r"\(\w+ (pid=\d+[^)]*)\) ?(.*)")
_MESSAGE = re.compile(r".*?\[\d{4}-\d\d-\d\d [^\]]*\] INFO (.*)")
_MARK = ">" * 10
_SAMPLE_END = re.compile(r"={50}\s*")
_SAMPLE_PART = re.compile(rf"\0{_MARK} (\w+):?\s*\0([^\0]*)")
_SAMPLE_KEYS = {"User": "prompt", "Assistant": "completion", "labels": "solution"}
WEIGHTS = "model_optim_rng.pt"
OPTIMIZER = "distrib_optim.pt"


def read_line(line: str, cards: int) -> tuple[Row, int] | None:
    """Return the metrics of the iteration that a line reports, and the number of all iterations."""
    match = _ITERATION.search(_COLOURS.sub("", line))
    if match is None:
        return None
    values = {name: float(value) for name, value in _PAIR.findall(match[3])}
    row: Row = {"step": float(match[1])}
    for names in (SCORES, NAMES):  # training uses rewards; they replace scores if both are logged
        row.update({metric: values[name] for name, metric in names.items() if name in values})
    row.update({metric: values[name] * cards for name, metric in RATES.items() if name in values})
    for name, value in values.items():
        if verifier := _VERIFIER.fullmatch(name):
            row[f"reward/{verifier[1]}"] = value
    return row, int(match[2])


class SampleReader:
    """Collects samples from the mixed lines of several processes."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        """Process -> its output since its sample began; every message of its logger begins with NUL."""

    def read(self, line: str) -> dict[str, str] | None:
        """Read one line; return the sample that it completes, else None."""
        match = _PROCESS.fullmatch(_COLOURS.sub("", line).rstrip("\r\n"))
        if match is None:
            return None
        process, text = match.groups()
        message = _MESSAGE.fullmatch(text)
        if message and _SAMPLE_END.fullmatch(message[1]):
            parts = dict(_SAMPLE_PART.findall(self._texts.pop(process, "")))
            sample = {key: parts[name].strip() for name, key in _SAMPLE_KEYS.items() if name in parts}
            return sample if {"prompt", "completion"} <= sample.keys() else None
        if process in self._texts or (message and message[1].startswith(_MARK)):
            added = f"\0{message[1]}\n" if message else f"{text}\n"
            self._texts[process] = self._texts.get(process, "") + added
        return None


class TrainWatcher(StepWatcher):
    """Writes metrics.jsonl and completions.jsonl; removes checkpoints beyond train.keep_checkpoints."""

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        super().__init__(logs / DRIVER_LOG, work, report, completions=True)
        self._job, self._checkpoints = job, checkpoints_of_run(work / "checkpoints", job.layout.train)
        self._sample_reader, self._samples = SampleReader(), list[dict[str, str]]()

    def read(self, line: str) -> None:
        """Process one line; an iteration that Ray repeats counts once."""
        sample = self.parse(self._sample_reader.read, line)
        if sample is not None and len(self._samples) < self._job.train.logged_completions:
            self._samples.append(sample)
        iteration = self.parse(functools.partial(read_line, cards=self._job.npus), line)
        if iteration is None or iteration[0]["step"] <= self.last:
            return
        row, total = iteration
        step = int(row["step"])
        samples = self._samples if step % self._job.train.completions_every == 0 else []
        self.add(row, total, [{"step": step, **sample} for sample in samples])
        self._samples.clear()
        self._checkpoints.prune(self._job.train.keep_checkpoints)  # MindSpeed-RL itself keeps all


def checkpoints_of_run(root: Path, layout: RoleLayout) -> TrackedCheckpoints:
    """Return the checkpoints of a run."""
    return _tracked(root, layout, layout.enable_parallel_optimizer)


def _tracked(root: Path, layout: RoleLayout, optimizer: bool) -> TrackedCheckpoints:
    return TrackedCheckpoints(root, "iter_{:07d}", partial(defect, layout, optimizer))


def ranks(layout: RoleLayout) -> list[str]:
    """Return the directories of one iteration: one per part of the model."""
    tensor, pipeline = range(layout.model_parallel), range(layout.pipeline_stage)
    if layout.pipeline_stage == 1:
        return [f"mp_rank_{t:02d}" for t in tensor]
    return [f"mp_rank_{t:02d}_{p:03d}" for t in tensor for p in pipeline]


def defect(layout: RoleLayout, optimizer: bool, directory: Path) -> str | None:
    """Return what is missing or truncated in one iteration's directory; None if it is complete."""
    for rank in ranks(layout):
        for name in (WEIGHTS, OPTIMIZER) if optimizer else (WEIGHTS,):
            file = directory / rank / name  # every rank directory has an optimizer, of data-parallel rank 0
            if not file.is_file() or file.stat().st_size == 0:
                return f"{rank}/{name} is missing"
            if _is_truncated(file):
                return f"{rank}/{name} is truncated"
    extra = {path.name for path in directory.glob("mp_rank_*")} - set(ranks(layout))
    return f"it was sharded for another layout: {min(extra)}" if extra else None


def _is_truncated(file: Path) -> bool:
    """Return True if a zip archive (torch.save's format) has no end; other formats cannot be checked."""
    with file.open("rb") as stream:
        return stream.read(2) == b"PK" and not zipfile.is_zipfile(file)


def converted(root: Path, layout: RoleLayout) -> Path:
    """Return the directory of a converter's result; raises InputError if it is incomplete for the layout."""
    written, remedy = _tracked(root, layout, optimizer=False), "read the converter's log"
    iteration = written.tracked()
    if iteration is None:
        raise InputError(written.tracker, None, "must name what the converter wrote", remedy)
    weights = written.directory(iteration)
    if fault := written.defect(weights):
        raise InputError(weights, None, f"is no complete checkpoint of {layout.name}: {fault}", remedy)
    return weights


def import_weights(directory: Path, target: Path, layout: RoleLayout) -> None:
    """Link or copy the weights of one iteration into an artifact, and write its tracker."""
    for rank in ranks(layout):
        file = target / directory.name / rank / WEIGHTS
        file.parent.mkdir(parents=True)
        link_or_copy(directory / rank / WEIGHTS, file)
    number = int(directory.name.removeprefix("iter_"))
    (target / TRACKER).write_text(str(number), encoding="utf-8")
