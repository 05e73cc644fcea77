"""`grpoflow serve-check`: a check of an exported model in another inference program."""

import importlib.util
import json
import math
from argparse import Namespace
from pathlib import Path

from pipeline.cli.command import Bounded, Commands, exported, sections_of, store_of
from pipeline.config.directory import section
from pipeline.config.load import derived_values
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.store import history
from stages.base.reader import read
from stages.fetch.config import DatasetConfig
from stages.grpo.config import RolloutConfig
from stages.report.text import neutral, shorten
from stages.rewards.functions import accuracy_reward
from stages.tokenize.config import TokenizeConfig

PROMPTS = ["What is 2 + 3?", "Name a colour.", "The capital of France is"]  # for a directory without a run
SHOWN = 3  # held-out prompts that are printed with their answers


def register(commands: Commands) -> None:
    """Add `serve-check`."""
    parser = commands.add(
        "serve-check",
        serve_check,
        "check that an exported model reaches evaluate's accuracy in another program (exit 1: it does not)",
        "last --prompts 100 --program vllm",
        "DIR --prompt 'What is 2 + 3?'",
    )
    parser.set_defaults(run_is_optional=True)
    parser.add_argument("run", metavar="RUN|DIR", nargs="?", help="a run, or a Hugging Face directory")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="use this prompt; may be repeated")
    number = Bounded(int, 1)
    parser.add_argument(
        "--prompts", type=number, metavar="N", help="the first N of evaluate's (default: all)"
    )
    parser.add_argument("--program", choices=("transformers", "vllm"), default="transformers")


def serve_check(options: Namespace) -> int:
    """Let an exported model answer prompts, and compare its accuracy with evaluate's."""
    source, prompts = options.run or "last", options.prompt
    if Path(source).is_dir():
        directory, config = Path(source), derived_values(options.overrides, options.config_dir)
        section(directory, "RUN|DIR", "see `grpoflow runs`")
        prompts = prompts or PROMPTS
    else:
        root = store_of(options).root
        record = history.find(root, source)
        directory, config = exported(root, record), sections_of(record, "rollout", "dataset", "tokenize")
    rollout = read(RolloutConfig, config["rollout"])
    if prompts:
        answers = _ask(options.program, directory, prompts, rollout)
        _print(list(zip(prompts, answers, strict=True)))
        answered = sum(bool(answer.strip()) for answer in answers)
        summary = f"{directory} loads with {options.program}; {answered} of {len(answers)} answers"
        return _verdict(answered > 0, summary)
    inputs = [root / record.artifact(name) for name in ("evaluate", "fetch_dataset", "tokenize")]
    if missing := [path for path in inputs if not path.is_dir()]:
        raise StoreError(f"{missing[0]}: does not exist; get it by `grpoflow pull`, or give --prompt")
    from stages.grpo.serve_check import held_out  # imports fetch and tokenize
    from stages.tokenize.text import ground_truth

    dataset, tokenize = read(DatasetConfig, config["dataset"]), read(TokenizeConfig, config["tokenize"])
    result = json.loads((inputs[0] / "result.json").read_text(encoding="utf-8"))
    rows = held_out(inputs[1], inputs[2], dataset, tokenize)[: result["prompts"]][: options.prompts]
    answers = _ask(options.program, directory, [row.prompt for row in rows], rollout)
    _print([(row.prompt, answer) for row, answer in zip(rows, answers, strict=True)][:SHOWN])
    lines = (inputs[0] / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    equal = [json.loads(line)["after"] == answer for line, answer in zip(lines, answers, strict=False)]
    solutions = [ground_truth(row, dataset, tokenize) for row in rows]
    right, expected = sum(map(bool, accuracy_reward(answers, solutions))), float(result["accuracy_grpo"])
    # If evaluate's accuracy was 0, only equal answers show that it is the same model.
    good = not differs(right, len(rows), expected) and (expected > 0 or not equal or any(equal))
    shares = f"{right} of {len(rows)} right ({right / len(rows):.3f}), evaluate {expected:.3f}"
    summary = (
        f"{directory} loads with {options.program}; {shares}; {sum(equal)} of {len(equal)} answers equal"
    )
    return _verdict(good, summary)


def differs(right: int, total: int, expected: float) -> bool:
    """Return True if an accuracy is more than two standard errors away from the expected one.

    The error includes two right and two wrong answers more (Agresti and Coull 1998), so that one answer that
    16-bit arithmetic changes is no failure where evaluate found none or all right.
    """
    share = (expected * total + 2) / (total + 4)
    return abs(right / total - expected) > 2 * math.sqrt(share * (1 - share) / (total + 4))


def _ask(program: str, directory: Path, questions: list[str], rollout: RolloutConfig) -> list[str]:
    if importlib.util.find_spec(program) is None:
        raise ConfigError([Problem("--program", program, "is not installed", f"pip install {program}")])
    from stages.grpo.serve_check import ask_transformers, ask_vllm

    try:
        return {"transformers": ask_transformers, "vllm": ask_vllm}[program](directory, questions, rollout)
    except Exception as error:  # another program's errors are of any kind
        raise StoreError(f"{directory}: does not serve: {type(error).__name__}: {error}") from error


def _print(rows: list[tuple[str, str]]) -> None:
    for row in rows:
        prompt, answer = (neutral(shorten(text.strip(), 300)).replace("\n", " ⏎ ") for text in row)
        print(f"prompt  {prompt}\nanswer  {answer}")


def _verdict(good: bool, summary: str) -> int:
    print(f"{'ok' if good else 'NOT ok'}: {summary}")
    return Exit.DONE if good else Exit.FAILED
