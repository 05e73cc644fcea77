"""What leaves the store: a run's model as a directory of one's own, and whether it answers elsewhere."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch import process
from launch.errors import ProcessFailed
from pipeline.config.compose_cache import compose_cached
from pipeline.config.load import derive, load
from pipeline.errors import ConfigError, Problem, StoreError
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.ui import watch
from stages.config import read
from stages.files import read_text
from stages.grpo.checkpoint_files import flaw
from stages.model_config import ModelConfig
from stages.report.text import neutral, shorten

PROMPTS = ["What is 2 + 3?", "Name a colour.", "The capital of France is"]
"""For a directory of which nothing else is known."""
ASKED, NEEDED = 3, 2
"""Held-out prompts, and how many must be answered as by evaluate: 16-bit arithmetic may tip a word of one."""
FROM_FILE = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
    "vocab_size", "max_position_embeddings", "rope_theta", "rms_norm_eps", "tie_word_embeddings",
)  # fmt: skip
EXIT_DONE, EXIT_FAILED = 0, 1


def export_run(options: Namespace, wanted: str, out: Path | None) -> int:
    """Tell where a run's Hugging Face directory is, or copy it to `out`; with --best, of the best checkpoint.

    Raises:
        StoreError: there is none, or the best one is gone.
    """
    root = _root(options)
    record = history.find(root, wanted)
    if options.best and not (root / record.artifact("grpo")).is_dir():
        return _export_checkpoint(root, record, out)
    if options.best:
        print(f"run {record.id}: {_best_kept(root, record)}", file=sys.stderr)
    place = _exported(root, record)
    if out is None:
        print(place)
        return EXIT_DONE
    from stages.weights.outputs import complete_directory

    with complete_directory(out) as directory:
        for file in place.iterdir():
            if file.name != "manifest.json":
                shutil.copyfile(file, directory / file.name)
    print(out)
    return EXIT_DONE


def _best_kept(root: Path, record: Record) -> str:
    result = json.loads((root / record.artifact("grpo") / "result.json").read_text(encoding="utf-8"))
    engine = record.section("engine").get("name")
    if engine != "local":
        raise StoreError(
            f"run {record.id}: engine={engine} compares no checkpoints; export it without --best"
        )
    again = f"grpoflow run {shlex.join(record.overrides)} train.keep_best=true"
    if result.get("best_step") is None:
        raise StoreError(
            f"run {record.id}: no checkpoint was ever compared with another (train.validate_every=0); "
            f"type: {again} train.validate_every=10"
        )
    best = f"step {result['best_step']}, held-out accuracy {result['best_accuracy']:.3f}"
    if result["weights_of_step"] != result["best_step"]:
        raise StoreError(
            f"run {record.id}: the best checkpoint ({best}) was not kept, only that of step "
            f"{result['weights_of_step']}; type: {again}"
        )
    return best


def _export_checkpoint(root: Path, record: Record, out: Path | None) -> int:
    """The best checkpoint so far of a run whose grpo has not ended."""
    from stages.export import export
    from stages.weights.outputs import complete_directory
    from stages.weights.slicing import read_strategy
    from stages.weights.sources import open_ranks

    if out is None:
        rule = "grpo has not ended, so that nothing is exported yet: name a directory for its best checkpoint"
        raise ConfigError([Problem("OUT", None, rule, f"grpoflow export {record.id} DIR --best")])
    attempt = watch.seat(root, record.artifact("grpo"), 0.0)
    states = sorted(attempt.glob("checkpoints/step_*/state.json")) if attempt else []
    best = json.loads(states[-1].read_text(encoding="utf-8"))["best"] if states else {}
    if best.get("step") is None or not states[-1].parent.with_name(f"step_{best['step']:06d}").is_dir():
        raise StoreError(
            f"run {record.id}: no best checkpoint; it is kept with train.keep_best=true and "
            "train.validate_every=N, from the first check on"
        )
    checkpoint = states[-1].parent.with_name(f"step_{best['step']:06d}")
    damage = flaw(checkpoint)
    if damage is not None:
        raise StoreError(f"{checkpoint}: is damaged: {damage}; grpoflow run goes on from before it")
    model = read(ModelConfig, _sections(record)["model"], "model")
    tensors = open_ranks(checkpoint / "weights", read_strategy(checkpoint / "train_strategy"))
    with complete_directory(out) as directory:
        export(tensors, root / record.artifact("fetch"), directory, model, None)
    told = f"step {best['step']}, held-out accuracy {best['accuracy']:.3f}"
    print(f"run {record.id}: {told}, the best so far", file=sys.stderr)
    print(out)
    return EXIT_DONE


def serve_check(options: Namespace) -> int:
    """Load an exported model, let it answer three prompts, compare with what evaluate saw."""
    wanted = options.run or "last"
    if Path(wanted).is_dir():
        directory, config, inputs, expected = Path(wanted), _foreign(Path(wanted), options), {}, None
        prompts: list[str] | None = options.prompt or PROMPTS
    else:
        root = _root(options)
        record = history.find(root, wanted)
        directory, config = _exported(root, record), _sections(record)
        inputs = {"tokenize": root / record.artifact("tokenize")}
        prompts = options.prompt
        expected = None if prompts else _answers_of(root / record.artifact("evaluate") / "samples.jsonl")
    program = options.program or _program()
    values = {"program": program, "prompts": prompts, "count": ASKED if expected is None else len(expected)}
    told = _serve(
        directory, inputs, {key: config[key] for key in ("model", "rollout")} | {"serve_check": values}
    )
    equal = 0
    for number, (prompt, answer) in enumerate(zip(told["prompts"], told["answers"], strict=True)):
        same = None if expected is None else answer == expected[number]
        equal += bool(same)
        verdict = "" if same is None else f"  [{'as evaluate saw it' if same else 'evaluate saw another'}]"
        print(f"prompt  {_line(prompt)}\nanswer  {_line(answer)}{verdict}")
    answered = sum(bool(answer.strip()) for answer in told["answers"])
    count = len(told["answers"])
    good = answered > 0 if expected is None else equal >= min(NEEDED, count)
    compared = "" if expected is None else f", {equal} as evaluate saw them"
    verdict = "ok" if good else "NOT ok"
    print(f"{verdict}: {directory} loads with {program}; {answered} of {count} answers{compared}")
    return EXIT_DONE if good else EXIT_FAILED


def split_overrides(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names and KEY=VALUE overrides of one list of words; a path with = is told by its slash."""
    overrides = [name for name in names if re.match(r"[+~]*\w[\w.]*=", name)]
    return [name for name in names if name not in overrides], overrides


def _serve(directory: Path, inputs: Mapping[str, Path], config: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="serve-check-") as scratch:
        place = Path(scratch)
        spec = {
            "stage": "serve_check",
            "config": config,
            "inputs": {
                "model": str(directory.absolute()),
                **{key: str(path) for key, path in inputs.items()},
            },
            "output": scratch,
            "work": scratch,
            "progress_file": str(place / "progress.jsonl"),
        }
        (place / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        program = [sys.executable, "-m", "stages", "serve_check", str(place / "spec.json")]
        try:
            process.run(program, job=scratch, log=place / "log")
        except ProcessFailed as error:
            raise StoreError(f"{directory}: does not serve\n" + "\n".join(error.tail)) from error
        return dict(json.loads((place / "answers.json").read_text(encoding="utf-8")))


def _program() -> str:
    found = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    return "transformers" if found else "local"


def _sections(record: Record) -> dict[str, Any]:
    """A run's sections; keys that are younger than the run have their defaults."""
    usual = derive(compose_cached([], None))
    return {name: {**usual[name], **record.section(name)} for name in ("model", "rollout")}


def _foreign(directory: Path, options: Namespace) -> dict[str, Any]:
    """Sections for a directory that no run made: its own config.json, the rest from the configuration."""
    values = derive(compose_cached(options.overrides, options.config_dir))
    try:
        told = json.loads(read_text(directory / "config.json"))
        if not isinstance(told, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError) as error:
        rule = f"must be a Hugging Face directory with a config.json ({error})"
        raise ConfigError([Problem("RUN|DIR", directory, rule, "see `grpoflow runs`")]) from error
    rotary = told.get("rope_parameters")
    told |= rotary if isinstance(rotary, dict) else {}
    values["model"] |= {key: told[key] for key in FROM_FILE if key in told}
    return values


def _answers_of(samples: Path) -> list[str]:
    try:
        lines = samples.read_text(encoding="utf-8").splitlines()[:ASKED]
    except OSError as error:
        raise StoreError(f"{samples}: not there; the run must be evaluated, or give --prompt") from error
    return [str(json.loads(line)["after"]) for line in lines]


def _exported(root: Path, record: Record) -> Path:
    place = root / record.artifacts.get("export", "export/none")
    if not place.is_dir():
        exports = "export" in record.artifacts
        told = f"run {record.id} is {record.state}" if exports else "its engine exports none"
        raise StoreError(f"{place}: no exported model ({told}); see `grpoflow runs`")
    return place


def _root(options: Namespace) -> Path:
    return Path(load(options.overrides, options.config_dir).store).absolute()


def _line(text: str) -> str:
    return neutral(shorten(text.strip(), 300)).replace("\n", " ⏎ ")
