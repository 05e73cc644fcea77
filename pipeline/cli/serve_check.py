"""`grpoflow serve-check`: whether a model that left the store answers elsewhere."""

import importlib.util
import json
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.errors import ProcessFailed
from launch.process import child
from pipeline.cli.command import Commands, exported, sections_of, store_of
from pipeline.config.compose_cache import compose_cached
from pipeline.config.directory import section
from pipeline.config.load import derive
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.plan.process import write_spec
from pipeline.store import history
from stages.report.text import neutral, shorten

PROMPTS = ["What is 2 + 3?", "Name a colour.", "The capital of France is"]
"""For a directory of which nothing else is known."""
SHOWN = 3
"""Held-out prompts that are shown with their answers."""
SECTIONS = ("model", "rollout", "dataset", "tokenize")


def register(commands: Commands) -> None:
    """Add `serve-check`."""
    parser = commands.add(
        "serve-check",
        serve_check,
        "load an exported model and ask evaluate's prompts through its chat template (exit 1: it does not "
        "load, or its accuracy is more than two standard errors from evaluate's)",
        "last --prompts 100 --program vllm",
        "DIR --prompt 'What is 2 + 3?'",
    )
    parser.set_defaults(run_is_optional=True)
    parser.add_argument("run", metavar="RUN|DIR", nargs="?", help="a run, or a Hugging Face directory")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="ask this; may be repeated")
    parser.add_argument(
        "--prompts", type=int, metavar="N", help="ask the first N of evaluate's prompts (default: all)"
    )
    parser.add_argument(
        "--program", choices=("transformers", "vllm", "local"), help="default: transformers if there"
    )


def serve_check(options: Namespace) -> int:
    """Load an exported model, ask it as training did, compare with what evaluate saw."""
    if options.prompts is not None and options.prompts < 1:
        raise ConfigError([Problem("--prompts", options.prompts, "must be 1 or more")])
    wanted, program = options.run or "last", options.program or _program()
    if Path(wanted).is_dir():
        directory = Path(wanted)
        values = _asking(program, options.prompt or PROMPTS)
        reply = _serve(directory, {}, _foreign(directory, options), values)
        return _answered(directory, program, reply)
    root = store_of(options).root
    record = history.find(root, wanted)
    directory, config = exported(root, record), sections_of(record, *SECTIONS)
    if options.prompt:
        return _answered(directory, program, _serve(directory, {}, config, _asking(program, options.prompt)))
    result, samples = _evaluated(root / record.artifact("evaluate"))
    count = min(options.prompts or result["prompts"], result["prompts"])
    inputs = {name: root / record.artifact(name) for name in ("tokenize", "fetch_dataset")}
    for place in inputs.values():
        if not place.is_dir():
            raise StoreError(f"{place}: not there; bring it here (grpoflow pull), or give --prompt")
    reply = _serve(directory, inputs, config, _asking(program, None, count))
    return _compared(directory, program, reply, float(result["accuracy_grpo"]), samples)


def _asking(program: str, prompts: list[str] | None, count: int | None = None) -> dict[str, Any]:
    return {"program": program, "prompts": prompts, "count": count}


def _answered(directory: Path, program: str, reply: Mapping[str, Any]) -> int:
    """Of questions to which nobody knows the answers: whether it says anything."""
    _show(reply, [])
    answered = sum(bool(answer.strip()) for answer in reply["answers"])
    print(
        f"{'ok' if answered else 'NOT ok'}: {directory} loads with {program}; "
        f"{answered} of {len(reply['answers'])} answers"
    )
    return Exit.DONE if answered else Exit.FAILED


def _compared(
    directory: Path, program: str, reply: Mapping[str, Any], expected: float, samples: list[str]
) -> int:
    from stages.grpo.serve_check import differs

    same = _show(reply, samples)
    asked, right, otherwise = (reply[key] for key in ("asked", "right", "otherwise"))
    # where evaluate saw nothing right, only the answers tell one model from another
    good = not differs(right, asked, expected) and (expected > 0 or not samples or same > 0)
    if otherwise:
        print(f"note: {otherwise} of {asked} prompts have other ids through the template than in training")
    verdict = "as evaluate's" if good else "which differs from evaluate's"
    print(
        f"{'ok' if good else 'NOT ok'}: {directory} loads with {program}; through its chat template "
        f"{right} of {asked} right ({right / asked:.3f}), {verdict} {expected:.3f}"
    )
    return Exit.DONE if good else Exit.FAILED


def _show(reply: Mapping[str, Any], samples: list[str]) -> int:
    """The first prompts and answers, and whether evaluate saw these; how many it did."""
    for number, (prompt, answer) in enumerate(zip(reply["prompts"], reply["answers"], strict=True)):
        if samples and number == SHOWN:
            break
        verdict = ""
        if number < len(samples):
            verdict = f"  [{'as evaluate saw it' if answer == samples[number] else 'evaluate saw another'}]"
        print(f"prompt  {_line(prompt)}\nanswer  {_line(answer)}{verdict}")
    return sum(answer == seen for answer, seen in zip(reply["answers"], samples, strict=False))


def _serve(
    directory: Path, inputs: Mapping[str, Path], config: Mapping[str, Any], asking: Mapping[str, Any]
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="serve-check-") as scratch:
        place = Path(scratch)
        told = {**{name: config[name] for name in SECTIONS}, "serve_check": asking}
        arguments = write_spec(place, "serve_check", told, {"model": directory.absolute(), **inputs})
        program = [sys.executable, *arguments]
        try:
            child.run(program, job=scratch, log=place / "log")
        except ProcessFailed as error:
            raise StoreError(f"{directory}: does not serve\n" + "\n".join(error.tail)) from error
        return dict(json.loads((place / "answers.json").read_text(encoding="utf-8")))


def _program() -> str:
    installed = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    return "transformers" if installed else "local"


def _foreign(directory: Path, options: Namespace) -> dict[str, Any]:
    """Sections for a directory that no run made: its own config.json, the rest from the configuration."""
    values = derive(compose_cached(options.overrides, options.config_dir))
    values["model"] |= section(directory, "RUN|DIR", "see `grpoflow runs`")
    return values


def _evaluated(artifact: Path) -> tuple[dict[str, Any], list[str]]:
    """Result of evaluate, and the first answers that it saw."""
    try:
        result = json.loads((artifact / "result.json").read_text(encoding="utf-8"))
        lines = (artifact / "samples.jsonl").read_text(encoding="utf-8").splitlines()[:SHOWN]
    except OSError as error:
        raise StoreError(f"{artifact}: not there; the run must be evaluated, or give --prompt") from error
    return result, [str(json.loads(line)["after"]) for line in lines]


def _line(text: str) -> str:
    return neutral(shorten(text.strip(), 300)).replace("\n", " ⏎ ")
