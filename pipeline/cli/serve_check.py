"""`grpoflow serve-check`: a check of a run's exported model in another inference program."""

import importlib.util
import json
import math
from argparse import Namespace

from pipeline.cli.command import Commands, add_run, bounded, store_of
from pipeline.config.load import defaults
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.store import history
from stages.base.reader import read
from stages.fetch.config import DatasetConfig
from stages.grpo.config import RolloutConfig
from stages.rewards.config import RewardConfig
from stages.rewards.judge import are_right
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.text import ground_truth

READS = ("export", "evaluate", "fetch_dataset", "tokenize")


def register(commands: Commands) -> None:
    """Add `serve-check`."""
    help_text = "check that a run's exported model reaches evaluate's accuracy in another program"
    parser = commands.add(
        "serve-check", serve, f"{help_text} (exit 1: it does not)", "last --prompts 100 --program vllm"
    )
    add_run(parser, "last")
    parser.add_argument(
        "--prompts", type=bounded(1), metavar="N", help="the first N of evaluate's (default: all)"
    )
    parser.add_argument("--program", choices=("transformers", "vllm"), default="transformers")


def serve(options: Namespace) -> int:
    """Let an exported model answer evaluate's prompts, and compare the accuracies."""
    root = store_of(options).root
    record = history.find(root, options.run or "last")
    inputs = {name: root / record.artifact(name) for name in READS}
    if missing := [path for path in inputs.values() if not path.is_dir()]:
        raise StoreError(
            f"{missing[0]}: does not exist (run {record.id} is {record.state}); see `grpoflow runs`"
        )
    if importlib.util.find_spec(options.program) is None:
        remedy = f"pip install {options.program}"
        raise ConfigError([Problem("--program", options.program, "is not installed", remedy)])
    from stages.grpo import serve_check  # takes 0.1 s to import

    known = defaults().plain()  # keys that did not exist when the run was recorded
    sections = ("rollout", "reward", "dataset", "tokenize")
    config = {name: {**known[name], **record.section(name)} for name in sections}
    dataset, tokenize = read(DatasetConfig, config["dataset"]), read(TokenizeConfig, config["tokenize"])
    result = json.loads((inputs["evaluate"] / "result.json").read_text(encoding="utf-8"))
    rows = serve_check.held_out(inputs["fetch_dataset"], inputs["tokenize"], dataset, tokenize)
    rows = rows[: result["prompts"]][: options.prompts]
    rollout = read(RolloutConfig, config["rollout"])
    generate = serve_check.ask_vllm if options.program == "vllm" else serve_check.ask_transformers
    try:
        answers = generate(inputs["export"], [row.prompt for row in rows], rollout)
    except Exception as error:  # another program's errors are of any kind
        cause = f"{type(error).__name__}: {error}"
        raise StoreError(f"{inputs['export']}: does not serve: {cause}") from error
    lines = (inputs["evaluate"] / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    equal = [json.loads(line)["after"] == answer for line, answer in zip(lines, answers, strict=False)]
    solutions = [ground_truth(row, dataset, tokenize) for row in rows]
    right = sum(are_right(read(RewardConfig, config["reward"]), answers, solutions))
    expected = float(result["accuracy_grpo"])
    # If evaluate's accuracy was 0, only equal answers show that it is the same model.
    good = not differs(right, len(rows), expected) and (expected > 0 or not equal or any(equal))
    shares = f"{right} of {len(rows)} right ({right / len(rows):.3f}), evaluate {expected:.3f}"
    loaded = f"{inputs['export']} loads with {options.program}"
    print(f"{'ok' if good else 'NOT ok'}: {loaded}; {shares}; {sum(equal)} of {len(equal)} answers equal")
    return Exit.DONE if good else Exit.FAILED


def differs(right: int, total: int, expected: float) -> bool:
    """Return True if an accuracy is more than two standard errors away from the expected one.

    The error includes two right and two wrong answers more (Agresti and Coull 1998), so that one answer that
    16-bit arithmetic changes is no failure where evaluate found none or all right.
    """
    share = (expected * total + 2) / (total + 4)
    return abs(right / total - expected) > 2 * math.sqrt(share * (1 - share) / (total + 4))
