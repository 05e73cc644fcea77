"""`grpoflow serve-check` and `grpoflow serve`: a run's exported model in other programs."""

import json
import math
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from launch.machine import checks
from launch.process.job import engine_environment
from pipeline.cli.command import Commands, add_run, bounded, store_of
from pipeline.config.load import defaults
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.terminal import say
from stages.base.reader import read
from stages.base.redact import redact
from stages.fetch.config import DatasetConfig
from stages.grpo.config import RolloutConfig
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.correctness import are_right
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.text import ground_truth

READS = ("export", "evaluate", "fetch_dataset", "tokenize")
DTYPES = ("float32", "bfloat16", "float16")
PYTHON = "interpreter with the program: path or name"


def register(commands: Commands) -> None:
    """Add `serve-check` and `serve`."""
    help_text = "check that a run's exported model reaches evaluate's accuracy in another program"
    parser = commands.add(
        "serve-check",
        check,
        f"{help_text} (exit 1: it does not)",
        "last --prompts 100 --program vllm --python /opt/vllm/bin/python",
        "last --url http://127.0.0.1:8000",
    )
    add_run(parser, "last")
    parser.add_argument(
        "--prompts", type=bounded(1), metavar="N", help="the first N of evaluate's (default: all)"
    )
    parser.add_argument("--program", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument(
        "--python",
        help=f"{PYTHON} (default: vllm: the run's evaluate.python or engine.python; else grpoflow's)",
    )
    parser.add_argument("--url", help="ask a running server of OpenAI's interface instead of a program")
    parser.add_argument("--served-model", metavar="NAME", help="model at the server (default: the only one)")
    parser.add_argument(
        "--key-env", metavar="VARIABLE", help="environment variable with the server's key, which is not shown"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="type to compute in (default: that of the export)")
    parser.add_argument(
        "--memory-share",
        type=bounded(1, 100),
        metavar="PERCENT",
        help="of a card's memory for vLLM, on a CPU of the machine's (default: 90, or what is needed)",
    )
    parser = commands.add(
        "serve",
        serve,
        "print the vLLM command that serves a run's exported model",
        "last --exec",
        "last --port 8001 --tensor-parallel 4",
    )
    add_run(parser, "last")
    parser.add_argument("--exec", action="store_true", help="run it instead of printing it")
    parser.add_argument("--python", help=f"{PYTHON} (default: the run's evaluate.python or engine.python)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=bounded(1, 65535), default=8000, help="(default: %(default)s)")
    parser.add_argument("--name", help="name of the model for clients (default: the model's, with -grpo)")
    parser.add_argument("--dtype", choices=DTYPES, help="type to compute in (default: that of the export)")
    parser.add_argument(
        "--tensor-parallel", type=bounded(1), metavar="N", help="cards (default: evaluate.layout's)"
    )


def check(options: Namespace) -> int:
    """Let an exported model answer evaluate's prompts, and compare the accuracies."""
    root = store_of(options).root
    record = _exported(root, options.run or "last", READS)
    inputs = {name: root / record.artifact(name) for name in READS}
    from stages.inference import serving  # takes 0.1 s to import

    config = _config(record, ("rollout", "reward", "dataset", "tokenize", "model"))
    address, key = (_address(options.url), _key(options.key_env)) if options.url else ("", None)
    dataset, tokenize = read(DatasetConfig, config["dataset"]), read(TokenizeConfig, config["tokenize"])
    result = json.loads((inputs["evaluate"] / "result.json").read_text(encoding="utf-8"))
    rows = serving.held_out(inputs["fetch_dataset"], inputs["tokenize"], dataset, tokenize)
    rows = rows[: result["prompts"]][: options.prompts]
    if not rows:
        path = inputs["tokenize"] / "test.mindrecord"
        raise StoreError(f"{path}: has no held-out prompt to ask; see `grpoflow show {record.id}`")
    rollout, questions = read(RolloutConfig, config["rollout"]), [row.prompt for row in rows]
    if options.url:
        done = serving.ask_server(address, questions, rollout, key, options.served_model)
    else:
        python, environment = _interpreter(options, record)
        done = serving.ask_program(
            [python], environment, options.program, inputs["export"], questions,
            read(ModelConfig, config["model"]), rollout, tokenize.max_prompt_length,
            options.dtype or serving.dtype_of(inputs["export"]),
            None if options.memory_share is None else options.memory_share / 100,
        )  # fmt: skip
    answers = done.answers
    lines = (inputs["evaluate"] / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    equal = [json.loads(line)["after"] == answer for line, answer in zip(lines, answers, strict=False)]
    solutions = [ground_truth(row, dataset, tokenize) for row in rows]
    right = sum(are_right(read(RewardConfig, config["reward"]), answers, solutions))
    expected = float(result["accuracy_grpo"])
    # If evaluate's accuracy was 0, only equal answers show that it is the same model.
    good = not differs(right, len(rows), expected) and (expected > 0 or not equal or any(equal))
    shares = f"{right} of {len(rows)} right ({right / len(rows):.3f}), evaluate {expected:.3f}"
    served = f"{inputs['export']} answers with {done.program}"
    say(f"{'ok' if good else 'NOT ok'}: {served}; {shares}; {sum(equal)} of {len(equal)} answers equal")
    return Exit.DONE if good else Exit.FAILED


def serve(options: Namespace) -> int:
    """Print the command that serves an exported model by vLLM, or run it."""
    root = store_of(options).root
    record = _exported(root, options.run or "last", ("export",))
    from stages.inference import serving

    config = _config(record, ("model", "engine", "evaluate"))
    engine, evaluate = config["engine"], config["evaluate"]
    python = options.python or evaluate["python"] or engine.get("python")
    if python is None:
        rule = "is no interpreter with vLLM: the run names none"
        raise ConfigError([Problem("--python", None, rule, "give its path")])
    layout = evaluate["layout"] or {}
    variables, command = serving.serve_command(
        python,
        root / record.artifact("export"),
        options.name or f"{config['model']['name']}-grpo",
        host=options.host,
        port=options.port,
        on_cpu="cpu" in (engine.get("device"), str(engine.get("device_target")).lower()),
        dtype=options.dtype,
        tensor_parallel=options.tensor_parallel or layout.get("tensor_parallel") or 1,
    )
    variables = {**variables, **engine.get("env", {}), **evaluate["env"]}
    scripts = [f". {shlex.quote(file)}" for file in engine.get("env_scripts", ())]
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    line = "\n".join([*scripts, f"{' '.join(words)} {shlex.join(command)}"])
    if not options.exec:
        print(line)
        return Exit.DONE
    sys.stdout.flush()
    environment = engine_environment(os.environ)
    container = list(engine.get("container", ()))
    whole = [
        *container,
        "bash",
        "-c",
        "\n".join([*scripts, f"exec env {' '.join(words)} {shlex.join(command)}"]),
    ]
    os.execvpe(whole[0], whole, environment)  # noqa: S606 (no shell reads what a user typed unquoted)


def _exported(root: Path, selector: str, stages: tuple[str, ...]) -> Record:
    """Return the run; `last` is the newest one whose artifacts of these stages exist.

    Raises:
        StoreError: the run lacks one.
    """
    if selector == "last":
        for record in reversed(history.runs(root).values()):
            if all(_has(root, record, stage) for stage in stages):
                return record
    record = history.find(root, selector)
    for stage in stages:
        path = root / record.artifact(stage)
        if not path.is_dir():
            state = f"run {record.id} is {record.state}"
            raise StoreError(f"{path}: does not exist ({state}); see `grpoflow runs`")
    return record


def _has(root: Path, record: Record, stage: str) -> bool:
    return stage in record.artifacts and (root / record.artifacts[stage]).is_dir()


def _config(record: Record, sections: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return sections of a run, with the defaults of keys that did not exist when it was recorded."""
    known = defaults().plain()
    return {name: {**(known[name] if name != "engine" else {}), **record.section(name)} for name in sections}


def _interpreter(options: Namespace, record: Record) -> tuple[str, Mapping[str, str]]:
    """Return the interpreter of the program, and its environment."""
    config = _config(record, ("engine", "evaluate"))
    engine, evaluate = config["engine"], config["evaluate"]
    python = options.python
    if python is None and options.program == "vllm":
        python = evaluate["python"] or engine.get("python")
    python = sys.executable if python is None else checks.interpreter(python) or python
    ask = f"import importlib.util as u; print(u.find_spec({options.program!r}) is not None)"
    answer = checks.script_output(python, ("-c", ask), "", checks.ANSWER_S)
    if answer is not None and answer.strip() == "False":
        rule, remedy = f"is not installed for {python}", "give --python, an interpreter that has it"
        raise ConfigError([Problem("--program", options.program, rule, remedy)])
    return python, {**engine_environment(os.environ), **engine.get("env", {}), **evaluate["env"]}


def _address(url: str) -> str:
    """Return the address of a server, which must hold no password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        rule, remedy = "must be http://HOST:PORT, without password and query", "give a key by --key-env"
        raise ConfigError([Problem("--url", redact(url), rule, remedy)])
    return url


def _key(variable: str | None) -> str | None:
    """Return the key in a variable of the environment."""
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        rule = "is no environment variable with a value"
        raise ConfigError([Problem("--key-env", variable, rule, "set it to the server's key")])
    return key


def differs(right: int, total: int, expected: float) -> bool:
    """Return True if an accuracy is more than two standard errors away from the expected one.

    The error includes two right and two wrong answers more (Agresti and Coull 1998), so that one answer that
    16-bit arithmetic changes is no failure where evaluate found none or all right.
    """
    share = (expected * total + 2) / (total + 4)
    return abs(right / total - expected) > 2 * math.sqrt(share * (1 - share) / (total + 4))
