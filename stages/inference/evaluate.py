"""Stage evaluate with evaluate.program=vllm: vLLM answers on the cards, and this process scores.

`prepare` writes the prompts' token ids and one Hugging Face directory per model, programs/answer.py answers
in vLLM's environment, and `collect` decodes and scores as evaluate.program=local does. Both models answer one
after the other. Greedy answers are those of local except for ties and rounding; samples are drawn by vLLM's
own random numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.base.context import Context
from stages.base.errors import InputError
from stages.base.reader import read
from stages.engines.config import OutsideProgram
from stages.engines.outside import REMEDY, Rendered, Report, Watcher, make_start, read_start, write_start
from stages.grpo import answers
from stages.grpo.answers import MODELS, Generated
from stages.grpo.config import EvaluateConfig, RolloutConfig
from stages.grpo.data import Prompts, Vocabulary
from stages.inference import arguments
from stages.models.config import Dtype, ModelConfig
from stages.tokenize.config import TokenizeConfig
from stages.tokenizer import SpecialIds
from stages.weights.export import export
from stages.weights.sources import open_ranks
from stages.weights.strategy.files import read_strategy

PROGRAM = Path(__file__).parent / "programs" / "answer.py"
JOB, PROMPTS, ANSWERS, WEIGHTS = "job.json", "prompts.jsonl", "answers", "weights"
"""Files and directories in the work directory."""
UNIT = "prompts"
"""Unit of the progress that `watch` reports."""
VARIABLES = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
}  # fmt: skip
"""Environment of vLLM: it asks no server, and reports nothing."""
WATCHED_S = 1.0
"""Seconds between looks at the finished batches."""


@dataclass(frozen=True)
class Batch:
    """Prompts that a replica answers at once."""

    start: int
    stop: int
    samples: int
    """Completions of each prompt; 0: one greedy answer."""

    @property
    def name(self) -> str:
        """Name of its file of answers, by which progress is counted, too."""
        return f"{'sampled' if self.samples else 'greedy'}-{self.start:06}-{self.stop:06}"


def batches(prompts: int, config: EvaluateConfig) -> Iterator[Batch]:
    """Yield the batches of `prompts` held-out prompts, whatever the number of replicas."""
    most, samples = config.batch_prompts, config.num_samples
    sampled = min(config.sample_prompts, prompts)
    for size, count, number in ((most, prompts, 0), (max(1, most // samples), sampled, samples)):
        for start in range(0, count, size):
            yield Batch(start, min(start + size, count), number)


def render(config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
    """Return how to start the program, and its job for as many prompts as are known before tokenize ends."""
    evaluate = read(EvaluateConfig, config["evaluate"], "evaluate")
    model, tokenize = (
        read(ModelConfig, config["model"], "model"),
        read(TokenizeConfig, config["tokenize"], "tokenize"),
    )
    ends = model.eos_token_id or ()
    ids = SpecialIds(None, (ends,) if isinstance(ends, int) else tuple(ends), 0)
    return _rendered(config, inputs, work, evaluate.num_prompts or 0, tokenize.max_prompt_length, ids)


def _rendered(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    work: Path,
    prompts: int,
    longest: int,
    ids: SpecialIds,
) -> Rendered:
    """Return the job of `prompts` prompts of at most `longest` tokens, and how to start it."""
    evaluate, model = (
        read(EvaluateConfig, config["evaluate"], "evaluate"),
        read(ModelConfig, config["model"], "model"),
    )
    rollout, layout = read(RolloutConfig, config["rollout"], "rollout"), evaluate.layout
    longest += rollout.max_tokens
    named = {batch.name: vars(batch) for batch in batches(prompts, evaluate)}
    decisive = {
        "arguments": arguments.of_model(evaluate, longest),
        "sampling": arguments.of_sampling(rollout, ids.eos),
        "drawing": arguments.of_drawing(rollout),
        "seed": config["seed"],
        "batches": named,
    }
    job = {
        **decisive,
        "models": {name: str(_weights(inputs, work, name)) for name in MODELS},
        "prompts": str(work / PROMPTS),
        "answers": str(work / ANSWERS / _digest(decisive)),
        "replicas": layout.replicas,
        "memory_share": evaluate.gpu_memory_utilization,
        "card_share": arguments.CARD_SHARE,
        "cache_bytes": arguments.cache_bytes(model, evaluate.batch_prompts, longest),
    }
    start = make_start(
        settings_of(config), [PROGRAM, work / JOB], work, VARIABLES, (), workers=layout.cards, each_node=True
    )
    return Rendered(start, {JOB: json.dumps(job, indent=1) + "\n"})


def settings_of(config: Mapping[str, Any]) -> OutsideProgram:
    """Return the interpreter and environment of vLLM: those of the engine, where evaluate names no others."""
    evaluate, engine = read(EvaluateConfig, config["evaluate"], "evaluate"), config["engine"]
    return OutsideProgram(
        python=evaluate.python or engine.get("python"),
        env_scripts=tuple(engine.get("env_scripts", ())),
        env={**engine.get("env", {}), **evaluate.env},
        container=tuple(engine.get("container", ())),
        silence_timeout_s=evaluate.silence_timeout_s,
    )


def _weights(inputs: Mapping[str, Path], work: Path, model: str) -> Path:
    """Return the Hugging Face directory of a model: its artifact, or what `prepare` merges from ranks."""
    return work / WEIGHTS / model if _has_ranks(inputs, model) else inputs[model]


def _has_ranks(inputs: Mapping[str, Path], model: str) -> bool:
    return "strategy" in inputs and (inputs[model] / "train").is_dir()


def _digest(decisive: Mapping[str, Any]) -> str:
    """Return a digest of what decides about answers, and of no directory, card or replica."""
    without = {name: value for name, value in decisive["arguments"].items() if name != "tensor_parallel_size"}
    code = [file.read_text(encoding="utf-8") for file in (PROGRAM, PROGRAM.with_name("opening.py"))]
    text = json.dumps({**decisive, "arguments": without, "code": code})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def prepare(context: Context) -> None:
    """Write prompts, weights and job; answers of an earlier attempt stay if what decides them is the same.

    Raises:
        ConfigError: pass@k cannot be estimated from the samples that are drawn.
        InputError: weights or data are missing or do not fit.
    """
    config = context.section(EvaluateConfig, "evaluate")
    prompts, vocabulary = answers.held_out(context, config)
    work, longest = context.work, int(prompts.lengths.max())
    rendered = _rendered(context.config, context.inputs, work, len(prompts), longest, vocabulary.special)
    results = Path(json.loads(rendered.files[JOB])["answers"])
    for earlier in results.parent.glob("*"):
        if earlier != results:
            shutil.rmtree(earlier)
    results.mkdir(parents=True, exist_ok=True)
    lines = (ids[:length].tolist() for ids, length in zip(prompts.ids, prompts.lengths, strict=True))
    (work / PROMPTS).write_text("".join(f"{json.dumps(ids)}\n" for ids in lines), encoding="utf-8")
    for model in MODELS:
        if _has_ranks(context.inputs, model):
            _merge(context, model, _weights(context.inputs, work, model))
    write_start(work, rendered)


def _merge(context: Context, model: str, target: Path) -> None:
    """Write the rank directories of an artifact as a Hugging Face directory, in the ranks' own precision."""
    if target.is_dir():
        return
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    strategy = read_strategy(context.inputs["strategy"] / "train_strategy")
    tensors = open_ranks(context.inputs[model] / "train", strategy)
    dtype: Dtype | None = "float32" if any(tensor.dtype == "F32" for tensor in tensors.values()) else None
    shape, progress = context.section(ModelConfig, "model"), context.progress_in_bytes(f"weights {model}")
    export(tensors, context.inputs["fetch"], part, shape, dtype, progress=progress)
    part.rename(target)


def watch(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Return a watcher that counts the prompts of finished batches."""
    return FinishedPrompts(logs / "start.log", work / ANSWERS, work / JOB, report)


class FinishedPrompts(Watcher):
    """Reports the prompts that both models have answered, by the files of finished batches."""

    def __init__(self, log: Path, results: Path, job: Path, report: Report) -> None:
        super().__init__(log, report)
        self._results, self._job = results, job
        self._looked_s, self._finished = -math.inf, -1

    def poll(self) -> None:
        """Report the finished prompts if there are more of them."""
        if time.monotonic() - self._looked_s < WATCHED_S or not self._job.exists():
            return
        self._looked_s = time.monotonic()
        planned = json.loads(self._job.read_text(encoding="utf-8"))["batches"]
        counts = {name: batch["stop"] - batch["start"] for name, batch in planned.items()}
        names = [path.stem for path in self._results.glob("*/*-*.jsonl")]
        finished = sum(counts.get(name.partition("-")[2], 0) for name in names)
        if finished != self._finished:
            self._finished = finished
            done = max((name.partition("-")[0] for name in names), key=MODELS.index, default=MODELS[0])
            self.report(finished, len(MODELS) * sum(counts.values()), f"{done} GRPO")


def collect(context: Context) -> None:
    """Read, decode and score the answers of both models, and write result.json and samples.jsonl.

    Raises:
        InputError: answers are missing or no token ids, although the program ended with exit code 0.
    """
    config = context.section(EvaluateConfig, "evaluate")
    prompts, vocabulary = answers.held_out(context, config)
    job = read_start(context.work)["start"]["program"][-1]
    results = Path(json.loads(Path(job).read_text(encoding="utf-8"))["answers"])
    size = context.section(ModelConfig, "model").vocab_size
    judged = {}
    for model in MODELS:
        done = read_answers(results, model, prompts, vocabulary, config, size)
        judged[model] = answers.judge(context, done, prompts, config)
        context.log(f"{model}: accuracy {judged[model].right.mean():.3f}")
    (program,) = read_lines(results / "program.jsonl")
    answers.write(context, prompts, judged, config, program=program)


def read_answers(
    results: Path, model: str, prompts: Prompts, vocabulary: Vocabulary, config: EvaluateConfig, size: int
) -> Generated:
    """Return one model's completions in the order of the prompts; ids must be below `size`."""
    ids: dict[bool, list[list[int]]] = {False: [], True: []}
    for batch in batches(len(prompts), config):
        file = results / f"{model}-{batch.name}.jsonl"
        rows, expected = read_lines(file), (batch.stop - batch.start) * max(1, batch.samples)
        if len(rows) != expected:
            raise InputError(file, len(rows), f"must have {expected} completions", REMEDY)
        for row in rows:
            if not all(type(index) is int and 0 <= index < size for index in row):
                raise InputError(file, None, f"must have token ids from 0 to {size - 1}", REMEDY)
        ids[batch.samples > 0] += rows
    greedy = ids[False]
    return Generated(_texts(greedy, vocabulary), [len(row) for row in greedy], _texts(ids[True], vocabulary))


def _texts(rows: Sequence[Sequence[int]], vocabulary: Vocabulary) -> list[str]:
    lengths = np.array([len(row) for row in rows], np.int32)
    padded = np.full((len(rows), max(map(len, rows), default=0)), vocabulary.special.pad, np.int32)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return vocabulary.texts(padded, lengths)


def read_lines(file: Path) -> list[Any]:
    """Return the values of a file with JSON lines; InputError if it does not exist."""
    if not file.is_file():
        rule = "does not exist, although vLLM ended with exit code 0"
        raise InputError(file, None, rule, REMEDY)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
