"""GSM8K as MindRecord beside mindrlhf's rlhf_data.py: whole processes, rows encoded per second, peak memory.

The peer is an option: --mindrlhf CHECKOUT [--python INTERPRETER] [--peer-path PYTHONPATH], in an environment
that can import mindrlhf and mindformers. --data holds gsm8k/ and qwen2.5-tokenizer/.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

from stages.base.reader import read
from stages.fetch.config import ColumnsConfig, DatasetConfig
from stages.fetch.jsonl import Row, read_lines
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.source import ROWS_PER_BATCH
from stages.tokenize.stage import make_encoder
from tests.benchmarks.figures import Figure, at_least, at_most, paired_medians, wall_s, write
from tests.stages.fetch.settings import SHARED, gsm8k_values, values

RUNS = 3
WHOLE_BAR = 3.0
ENCODE_BAR = 15_000
PEAK, PEAK_BAR_GIB = "peak_gib_1m_rows", 1.0
MANY_ROWS = 1_000_000
FILE_TYPES = ("jsonl", "json", "parquet")
# In the child itself: what a parent used before is not counted.
MEASURED = """
import re, sys
from pathlib import Path
from pipeline.cli import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""
PROMPT, SEQUENCE = 2048, 4096  # rlhf_data.py's defaults
QUESTIONS = ColumnsConfig("question", "answer")
OURS = Path(sys.executable).parent / "grpoflow"
SETTINGS = {"compat": "mindrlhf", "max_prompt_length": PROMPT, "seq_length": SEQUENCE}


def main(arguments: list[str]) -> bool:
    """Measure, write results/tokenize.json; True when every bar is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks tokenize", description=__doc__)
    parser.add_argument("--data", type=Path, default=SHARED / "data")
    parser.add_argument("--mindrlhf", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peer-path", default="")
    options = parser.parse_args(arguments)
    source, tokenizer = options.data / "gsm8k" / "train.jsonl", options.data / "qwen2.5-tokenizer"
    if not source.is_file() or not tokenizer.is_dir():
        names = (("whole_ratio", WHOLE_BAR, "ratio"), ("encode_rows_per_s", ENCODE_BAR, "rows/s"))
        missing = [at_least(name, None, bar, unit) for name, bar, unit in names]
        return write("tokenize", [*missing, at_most(PEAK, None, PEAK_BAR_GIB, "GiB")])
    with tempfile.TemporaryDirectory() as directory:
        return write("tokenize", _measure(Path(directory), source, tokenizer, options))


def _measure(root: Path, source: Path, tokenizer: Path, options: argparse.Namespace) -> list[Figure]:
    encoded = at_least("encode_rows_per_s", _encode_rows_per_s(source, tokenizer), ENCODE_BAR, "rows/s")
    peaks = {suffix: _peak_gib(root, suffix, source, tokenizer) for suffix in FILE_TYPES}
    memory = [Figure(f"{PEAK}_{suffix}", peak, "GiB") for suffix, peak in peaks.items()]
    memory = [at_most(PEAK, max(peaks.values()), PEAK_BAR_GIB, "GiB"), *memory]
    actual = partial(_fresh, root, partial(_ours, root, source, tokenizer))
    if options.mindrlhf is None:
        (seconds,) = paired_medians(RUNS, actual)
        return [at_least("whole_ratio", None, WHOLE_BAR), encoded, *memory, Figure("whole_s", seconds, "s")]
    reference = partial(_fresh, root, partial(_theirs, root, source, tokenizer, options))
    seconds, peer = paired_medians(RUNS, actual, reference)
    return [
        at_least("whole_ratio", peer / seconds, WHOLE_BAR),
        encoded,
        *memory,
        Figure("whole_s", seconds, "s"),
        Figure("whole_peer_s", peer, "s"),
    ]


def _fresh(root: Path, run: Callable[[], float]) -> float:
    """Run without the files of the run before."""
    for file in root.glob("train.mindrecord*"):
        file.unlink()
    return run()


def _ours(root: Path, source: Path, tokenizer: Path) -> float:
    files = ["--input", str(source), "--tokenizer", str(tokenizer), "--out", str(root)]
    overrides = [f"tokenize.{key}={value}" for key, value in SETTINGS.items()]
    return wall_s([str(OURS), "tokenize", *files, "dataset=gsm8k", *overrides], root)


def _theirs(root: Path, source: Path, tokenizer: Path, options: argparse.Namespace) -> float:
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
    """Median over whole passes: questions and ground truths of all rows to ids."""
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


def _peak_gib(root: Path, suffix: str, source: Path, tokenizer: Path) -> float:
    """Peak memory of a whole process with a million rows, each unlike the others."""
    path = root / f"many.{suffix}"
    _write_many(path, source)
    paths = ["--input", str(path), "--tokenizer", str(tokenizer), "--out", str(root / "many")]
    settings = ["tokenize.max_prompt_length=64", "tokenize.seq_length=8", "tokenize.over_long=truncate"]
    command = [sys.executable, "-c", MEASURED, "tokenize", *paths, "dataset=gsm8k", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{suffix}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    shutil.rmtree(root / "many")
    path.unlink()
    return int(done.stdout.split()[-1]) / 2**20


def _write_many(path: Path, source: Path) -> None:
    """GSM8K's questions again and again, shortened and numbered, as one of the file types."""
    texts = [row.prompt[:80] for row in read_lines(source, QUESTIONS) if isinstance(row, Row)]
    rows = ({"question": f"{i} {texts[i % len(texts)]}", "answer": f"#### {i}"} for i in range(MANY_ROWS))
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        kind = pyarrow.schema({"question": pyarrow.string(), "answer": pyarrow.string()})
        with ParquetWriter(path, kind) as writer:
            while batch := list(islice(rows, MANY_ROWS // 4)):
                writer.write_table(pyarrow.Table.from_pylist(batch, kind))
        return
    begin, between, end = ("[", ",\n", "]") if path.suffix == ".json" else ("", "\n", "\n")
    with path.open("w", encoding="utf-8") as file:
        for number, row in enumerate(rows):
            file.write((between if number else begin) + json.dumps(row))
        file.write(end)
