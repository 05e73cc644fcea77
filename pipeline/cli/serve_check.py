"""`grpoflow serve-check`: whether a model that left the store answers elsewhere."""

from __future__ import annotations

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
from pipeline.errors import Exit, StoreError
from pipeline.store import history
from stages.report.text import neutral, shorten

PROMPTS = ["What is 2 + 3?", "Name a colour.", "The capital of France is"]
"""For a directory of which nothing else is known."""
ASKED, NEEDED = 3, 2
"""Held-out prompts, and how many must be answered as by evaluate: 16-bit arithmetic may tip a word of one."""
FROM_FILE = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
    "vocab_size", "max_position_embeddings", "rope_theta", "rms_norm_eps", "tie_word_embeddings",
)  # fmt: skip


def register(commands: Commands) -> None:
    """Add `serve-check`."""
    parser = commands.add(
        "serve-check",
        serve_check,
        "load an exported model, let it answer three prompts (exit 1: it does not, or not as evaluate saw)",
        "DIR --prompt 'What is 2 + 3?'",
    )
    parser.set_defaults(run_is_optional=True)
    parser.add_argument("run", metavar="RUN|DIR", nargs="?", help="a run, or a Hugging Face directory")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="ask this; may be repeated")
    parser.add_argument("--program", choices=("transformers", "local"), help="default: transformers if there")


def serve_check(options: Namespace) -> int:
    """Load an exported model, let it answer three prompts, compare with what evaluate saw."""
    wanted = options.run or "last"
    if Path(wanted).is_dir():
        directory, config, inputs, expected = Path(wanted), _foreign(Path(wanted), options), {}, None
        prompts: list[str] | None = options.prompt or PROMPTS
    else:
        root = store_of(options).root
        record = history.find(root, wanted)
        directory, config = exported(root, record), sections_of(record)
        inputs = {"tokenize": root / record.artifact("tokenize")}
        prompts = options.prompt
        expected = None if prompts else _answers_of(root / record.artifact("evaluate") / "samples.jsonl")
    program = options.program or _program()
    values = {"program": program, "prompts": prompts, "count": ASKED if expected is None else len(expected)}
    reply = _serve(
        directory, inputs, {key: config[key] for key in ("model", "rollout")} | {"serve_check": values}
    )
    equal = 0
    for number, (prompt, answer) in enumerate(zip(reply["prompts"], reply["answers"], strict=True)):
        same = None if expected is None else answer == expected[number]
        equal += bool(same)
        verdict = "" if same is None else f"  [{'as evaluate saw it' if same else 'evaluate saw another'}]"
        print(f"prompt  {_line(prompt)}\nanswer  {_line(answer)}{verdict}")
    answered = sum(bool(answer.strip()) for answer in reply["answers"])
    count = len(reply["answers"])
    good = answered > 0 if expected is None else equal >= min(NEEDED, count)
    compared = "" if expected is None else f", {equal} as evaluate saw them"
    verdict = "ok" if good else "NOT ok"
    print(f"{verdict}: {directory} loads with {program}; {answered} of {count} answers{compared}")
    return Exit.DONE if good else Exit.FAILED


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


def _answers_of(samples: Path) -> list[str]:
    try:
        lines = samples.read_text(encoding="utf-8").splitlines()[:ASKED]
    except OSError as error:
        raise StoreError(f"{samples}: not there; the run must be evaluated, or give --prompt") from error
    return [str(json.loads(line)["after"]) for line in lines]


def _line(text: str) -> str:
    return neutral(shorten(text.strip(), 300)).replace("\n", " ⏎ ")
