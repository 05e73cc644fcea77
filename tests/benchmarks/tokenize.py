"""Measure the conversion of GSM8K to MindRecord, compared with mindrlhf's rlhf_data.py, and encoded rows/s.

Complete processes are compared. --mindrlhf CHECKOUT [--python INTERPRETER] [--peer-path PYTHONPATH] names an
environment that can import mindrlhf and mindformers. --data contains gsm8k/ and qwen2.5-tokenizer/.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from stages.base.reader import read
from stages.fetch.config import DatasetConfig
from stages.fetch.records import Row, read_lines
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.source import ROWS_PER_BATCH
from stages.tokenize.stage import make_encoder
from tests.benchmarks.figures import Figure, at_least, paired_medians, wall_s, write
from tests.stages.fetch.settings import SHARED, gsm8k_values, values

RUNS = 3
RATIO_TARGET = 3.0
ENCODE_TARGET = 15_000
PROMPT, SEQUENCE = 2048, 4096  # rlhf_data.py's defaults
GRPOFLOW = Path(sys.executable).parent / "grpoflow"
SETTINGS = {"compat": "mindrlhf", "max_prompt_length": PROMPT, "seq_length": SEQUENCE}


def main(arguments: list[str]) -> bool:
    """Measure and write results/tokenize.json; return True if every target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks tokenize", description=__doc__)
    parser.add_argument("--data", type=Path, default=SHARED / "data")
    parser.add_argument("--mindrlhf", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peer-path", default="")
    options = parser.parse_args(arguments)
    source, tokenizer = options.data / "gsm8k" / "train.jsonl", options.data / "qwen2.5-tokenizer"
    if not source.is_file() or not tokenizer.is_dir():
        names = (("whole_ratio", RATIO_TARGET, "ratio"), ("encode_rows_per_s", ENCODE_TARGET, "rows/s"))
        return write("tokenize", [at_least(name, None, target, unit) for name, target, unit in names])
    with tempfile.TemporaryDirectory() as directory:
        return write("tokenize", _measure(Path(directory), source, tokenizer, options))


def _measure(root: Path, source: Path, tokenizer: Path, options: argparse.Namespace) -> list[Figure]:
    encoded = at_least("encode_rows_per_s", _encode_rows_per_s(source, tokenizer), ENCODE_TARGET, "rows/s")
    actual = partial(_fresh, root, partial(_grpoflow, root, source, tokenizer))
    if options.mindrlhf is None:
        (seconds,) = paired_medians(RUNS, actual)
        return [at_least("whole_ratio", None, RATIO_TARGET), encoded, Figure("whole_s", seconds, "s")]
    reference = partial(_fresh, root, partial(_mindrlhf, root, source, tokenizer, options))
    seconds, peer = paired_medians(RUNS, actual, reference)
    return [
        at_least("whole_ratio", peer / seconds, RATIO_TARGET),
        encoded,
        Figure("whole_s", seconds, "s"),
        Figure("whole_peer_s", peer, "s"),
    ]


def _fresh(root: Path, run: Callable[[], float]) -> float:
    """Remove the files of the previous run, then run."""
    for file in root.glob("train.mindrecord*"):
        file.unlink()
    return run()


def _grpoflow(root: Path, source: Path, tokenizer: Path) -> float:
    files = ["--input", str(source), "--tokenizer", str(tokenizer), "--out", str(root)]
    overrides = [f"tokenize.{key}={value}" for key, value in SETTINGS.items()]
    return wall_s([str(GRPOFLOW), "tokenize", *files, "dataset=gsm8k", *overrides], root)


def _mindrlhf(root: Path, source: Path, tokenizer: Path, options: argparse.Namespace) -> float:
    script = options.mindrlhf / "examples" / "grpo" / "qwen_grpo_tutorial" / "rlhf_data.py"
    arguments = {
        "vocab_path": tokenizer / "vocab.json",
        "merges_file_path": tokenizer / "merges.txt",
        "file_path": source,
        "output_path": root / "train.mindrecord",
        "max_prompt_length": PROMPT,
        "seq_length": SEQUENCE,
        "dataset_type": "gsm8k",
    }
    paths = os.pathsep.join(filter(None, (str(options.mindrlhf), options.peer_path)))
    command = [options.python, str(script), *(f"--{key}={value}" for key, value in arguments.items())]
    return wall_s(command, root, {"PYTHONPATH": paths})


def _encode_rows_per_s(source: Path, tokenizer: Path) -> float:
    """Return the median rate of encoding the questions and ground truths of all rows."""
    dataset = read(DatasetConfig, gsm8k_values(str(source.parent)))
    encoder = make_encoder(
        tokenizer, None, dataset, read(TokenizeConfig, values("tokenize", "gsm8k") | SETTINGS)
    )
    rows = [entry for entry in read_lines(source, encoder.columns) if isinstance(entry, Row)]
    passes = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        for start in range(0, len(rows), ROWS_PER_BATCH):
            encoder.encode(rows[start : start + ROWS_PER_BATCH], with_answers=False)
        passes.append(len(rows) / (time.perf_counter() - began))
    return statistics.median(passes[1:])
