"""`grpoflow serve-check`: a check of an exported model in another inference program."""

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
from pipeline.cli.command import Bounded, Commands, exported, sections_of, store_of
from pipeline.config.directory import section
from pipeline.config.load import derived_values
from pipeline.errors import Exit, StoreError
from pipeline.plan.process import write_spec
from pipeline.store import history
from stages.report.text import neutral, shorten

PROMPTS = ["What is 2 + 3?", "Name a colour.", "The capital of France is"]
"""Default prompts for a directory that is not from a run."""
SHOWN = 3
"""Number of held-out prompts that are printed with their answers."""
SECTIONS = ("model", "rollout", "dataset", "tokenize")


def register(commands: Commands) -> None:
    """Add `serve-check`."""
    parser = commands.add(
        "serve-check",
        serve_check,
        "load an exported model and answer evaluate's prompts through its chat template (exit 1: it does not "
        "load, or its accuracy is more than two standard errors from evaluate's)",
        "last --prompts 100 --program vllm",
        "DIR --prompt 'What is 2 + 3?'",
    )
    parser.set_defaults(run_is_optional=True)
    parser.add_argument("run", metavar="RUN|DIR", nargs="?", help="a run, or a Hugging Face directory")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="use this prompt; may be repeated")
    parser.add_argument(
        "--prompts",
        type=Bounded(int, 1),
        metavar="N",
        help="use the first N of evaluate's prompts (default: all)",
    )
    parser.add_argument(
        "--program", choices=("transformers", "vllm", "local"), help="default: transformers if installed"
    )


def serve_check(options: Namespace) -> int:
    """Load an exported model, let it answer evaluate's prompts, and compare its accuracy with evaluate's."""
    source, program = options.run or "last", options.program or _program()
    if Path(source).is_dir():
        directory = Path(source)
        request = _request(program, options.prompt or PROMPTS)
        reply = _serve(directory, {}, _directory_config(directory, options), request)
        return _report_answers(directory, program, reply)
    root = store_of(options).root
    record = history.find(root, source)
    directory, config = exported(root, record), sections_of(record, *SECTIONS)
    if options.prompt:
        reply = _serve(directory, {}, config, _request(program, options.prompt))
        return _report_answers(directory, program, reply)
    result, samples = _evaluated(root / record.artifact("evaluate"))
    count = min(options.prompts or result["prompts"], result["prompts"])
    inputs = {name: root / record.artifact(name) for name in ("tokenize", "fetch_dataset")}
    for path in inputs.values():
        if not path.is_dir():
            raise StoreError(f"{path}: not there; bring it here (grpoflow pull), or give --prompt")
    reply = _serve(directory, inputs, config, _request(program, None, count))
    return _report_accuracy(directory, program, reply, float(result["accuracy_grpo"]), samples)


def _request(program: str, prompts: list[str] | None, count: int | None = None) -> dict[str, Any]:
    return {"program": program, "prompts": prompts, "count": count}


def _report_answers(directory: Path, program: str, reply: Mapping[str, Any]) -> int:
    """Print the answers to prompts without expected answers; exit code 1 if all are empty."""
    _show(reply, [])
    answered = sum(bool(answer.strip()) for answer in reply["answers"])
    print(
        f"{'ok' if answered else 'NOT ok'}: {directory} loads with {program}; "
        f"{answered} of {len(reply['answers'])} answers"
    )
    return Exit.DONE if answered else Exit.FAILED


def _report_accuracy(
    directory: Path, program: str, reply: Mapping[str, Any], expected: float, samples: list[str]
) -> int:
    """Print the accuracy; exit code 1 if it differs significantly from `expected`, evaluate's accuracy."""
    from stages.grpo.serve_check import differs

    num_same = _show(reply, samples)
    total, right, otherwise = (reply[key] for key in ("asked", "right", "otherwise"))
    # if evaluate's accuracy was 0, only equal answers show that it is the same model
    good = not differs(right, total, expected) and (expected > 0 or not samples or num_same > 0)
    if otherwise:
        print(f"note: {otherwise} of {total} prompts have other ids through the template than in training")
    verdict = "as evaluate's" if good else "which differs from evaluate's"
    print(
        f"{'ok' if good else 'NOT ok'}: {directory} loads with {program}; through its chat template "
        f"{right} of {total} right ({right / total:.3f}), {verdict} {expected:.3f}"
    )
    return Exit.DONE if good else Exit.FAILED


def _show(reply: Mapping[str, Any], samples: list[str]) -> int:
    """Print the first prompts and answers; return how many answers equal evaluate's `samples`."""
    for number, (prompt, answer) in enumerate(zip(reply["prompts"], reply["answers"], strict=True)):
        if samples and number == SHOWN:
            break
        verdict = ""
        if number < len(samples):
            verdict = f"  [{'as evaluate saw it' if answer == samples[number] else 'evaluate saw another'}]"
        print(f"prompt  {_line(prompt)}\nanswer  {_line(answer)}{verdict}")
    return sum(answer == seen for answer, seen in zip(reply["answers"], samples, strict=False))


def _serve(
    directory: Path, inputs: Mapping[str, Path], config: Mapping[str, Any], request: Mapping[str, Any]
) -> dict[str, Any]:
    """Load the model in a child process and generate; return its answers.json.

    Raises:
        StoreError: the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="serve-check-") as temporary:
        scratch = Path(temporary)
        values = {**{name: config[name] for name in SECTIONS}, "serve_check": request}
        inputs = {"model": directory.absolute(), **inputs}
        program = [sys.executable, *write_spec(scratch, "stages.grpo.serve_check", values, inputs)]
        try:
            child.run(program, job=temporary, log=scratch / "log")
        except ProcessFailed as error:
            raise StoreError(f"{directory}: does not serve\n" + "\n".join(error.tail)) from error
        return dict(json.loads((scratch / "answers.json").read_text(encoding="utf-8")))


def _program() -> str:
    installed = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    return "transformers" if installed else "local"


def _directory_config(directory: Path, options: Namespace) -> dict[str, Any]:
    """Return the configuration for a directory that is not from a run, with `model` from its config.json."""
    values = derived_values(options.overrides, options.config_dir)
    values["model"] |= section(directory, "RUN|DIR", "see `grpoflow runs`")
    return values


def _evaluated(artifact: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the result of evaluate, and the first answers of its trained model."""
    try:
        result = json.loads((artifact / "result.json").read_text(encoding="utf-8"))
        lines = (artifact / "samples.jsonl").read_text(encoding="utf-8").splitlines()[:SHOWN]
    except OSError as error:
        raise StoreError(f"{artifact}: not there; the run must be evaluated, or give --prompt") from error
    return result, [str(json.loads(line)["after"]) for line in lines]


def _line(text: str) -> str:
    return neutral(shorten(text.strip(), 300)).replace("\n", " ⏎ ")
