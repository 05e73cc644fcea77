"""Every format that is read: valid files, and the code that reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from launch.diagnose.diagnosis import diagnose
from pipeline.cli import make_parsers
from pipeline.store import attempt, collect, history
from pipeline.store.store import Key, Store
from pipeline.store.verify import verify
from pipeline.terminal import console
from pipeline.ui import watch
from pipeline.ui.live import overview
from stages import tokenizer as tokenizers
from stages.fetch import local, tokenizer_files
from stages.fetch.builtin import write_model
from stages.fetch.config import ColumnsConfig
from stages.fetch.records import count_rows, read_lines
from stages.fetch.stage import fetch_model
from stages.grpo.checkpoint import flaw, read_set, read_state
from stages.models.tensor_layout import slice_of
from stages.tokenize.chat import Turn, load_template
from stages.tokenize.mindrecord import MindRecordFile
from stages.tokenize.records import check_pair
from stages.weights import tensors
from stages.weights.complete import write_complete
from stages.weights.names import read_shape, renamed
from stages.weights.sources import as_tensor, open_directory
from stages.weights.strategy import files as strategy_files
from stages.weights.strategy.stage import write_strategy
from stages.weights.tensors import write_rank
from tests.pipeline.artifacts import commit, write_checkpoint
from tests.properties.mutations import BYTES, Mutation, header, values
from tests.stages.fetch.settings import fetch, model, write_lines
from tests.stages.weights.checkpoints import make_layout, make_model

DATA = Path(__file__).parents[1] / "data"
TEXT = (*BYTES, *3 * (values,))
COLUMNS = ColumnsConfig("question", "answer")
SHAPE = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
ROWS = [{"question": f"{n}+1?", "answer": f"{n}+1={n + 1}\n#### {n + 1}"} for n in range(9)]


@dataclass(frozen=True)
class Format:
    """A format."""

    make: Callable[[Path], object]
    """Writes valid files into an empty directory."""
    read: Callable[[Path], Any]
    """Reads them completely."""
    files: str
    """Glob of the files that tests change."""
    mutations: tuple[Mutation, ...] = BYTES


def weights(root: Path) -> None:
    source = np.random.default_rng(0)
    shapes = {"a": (4, 6), "b": (3,), "c": ()}
    arrays = {name: source.random(shape, np.float32) for name, shape in shapes.items()}
    write_rank(arrays, root / "model.safetensors", None)


def ckpt(root: Path) -> None:
    weights(root)
    stored = {name: as_tensor(tensor) for name, tensor in open_directory(root).items()}
    write_complete(stored, dict.fromkeys(stored, 0), root, file_format="ckpt")
    (root / "model.safetensors").unlink()


def sharded(root: Path) -> None:
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for name, file in names.items():
        write_rank({name: np.ones((2, 2), np.float32)}, root / file, None)
    (root / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def strategy(root: Path) -> None:
    layout = make_layout(data_parallel=2, model_parallel=2, enable_parallel_optimizer=True)
    write_strategy(make_model(num_hidden_layers=1), layout, root)
    for file in sorted(root.glob("ckpt_strategy_rank_[1-9]*")):
        file.unlink()


def rank_strategy(root: Path) -> None:
    strategy(root)
    (root / "merged_ckpt_strategy.ckpt").unlink()


def read_strategy(root: Path) -> object:
    strategies = strategy_files.read_strategy(root)
    for name, layout in strategies.tensors.items():
        shape = (96, 96)[: len(layout.tensor_map)]
        for rank in range(min(strategies.ranks, 8)):
            if strategies.holds(name, rank):
                slice_of(layout, shape, rank, name)


def parquet(root: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), root / "rows.parquet")


def json_array(root: Path) -> None:
    (root / "rows.json").write_text(json.dumps(ROWS, indent=1))


def read_rows(root: Path) -> object:
    file = next(iter(root.iterdir()), root / "rows.jsonl")
    list(read_lines(file, COLUMNS))
    assert count_rows([file]) >= 0


def mindrecord(root: Path) -> None:
    with MindRecordFile.for_rows(root / "train.mindrecord", {"prompt_ids": 4}, "int64", 9) as writer:
        writer.write({"prompt_ids": np.arange(36).reshape(9, 4)})


def huggingface(root: Path) -> None:
    if not (CACHE := root.parent / ".model").is_dir():
        CACHE.mkdir()
        tokenizer_files.write_trained([f"{row['question']}{row['answer']}" for row in ROWS], 300, CACHE)
        shape = model(**SHAPE)
        write_model(shape, tokenizer_files.ending_ids(CACHE), 0, CACHE)
    shutil.copytree(CACHE, root, dirs_exist_ok=True)


def read_huggingface(root: Path) -> object:
    """Read the files like plan, fetch, convert and tokenize."""
    shape = model(**SHAPE, source="local", path=str(root))
    local.check_model(root, shape)
    output = root / ".output"
    output.mkdir()
    fetch_model(shape, fetch(), output, root)
    ids = tokenizers.special_ids(output, shape)
    tokenizers.special_ids(output, None)
    read_shape(output)
    renamed(open_directory(output), shape, output)
    tokenizer = tokenizers.load(output)
    tokenizers.build(output)
    load_template(output, tokenizers.special_tokens(tokenizer)).render(
        [Turn("user", "3+4?")], generation=True
    )
    return ids, tokenizer.decode(tokenizer.encode("3+4=7 ü").ids)


def store(root: Path) -> None:
    """Write a store with a finished, a failed and an unfinished run."""
    fetched, unfinished = Key("fetch", "a" * 64), Key("grpo", "b" * 64)
    commit(Store(root), fetched, {"result.json": "{}", "rows/x.txt": "x" * 100})
    artifacts = {key.stage: str(key) for key in (fetched, unfinished)}
    runs = [f"20260101-00000{number}-aaaa" for number in range(3)]
    for run in runs:
        history.record(root, run, "started", overrides=["seed=1"], config={"seed": 1}, artifacts=artifacts)
    history.record(root, runs[0], "failed", stage="grpo", message="no")
    history.record(root, runs[0], "named", name="mine")
    result = {"accuracy_sft": 0.1, "accuracy_grpo": 0.2, "gain": 0.1}
    history.record(root, runs[1], "finished", result=result)
    progress = {"time_s": 1.0, "step": 1, "total": 4, "unit": "step", "message": "reward 0.5"}
    metrics = {"step": 1, "time_s": 1.0, "reward": 0.5, "tokens_per_s": 3.0, "step_s": 1.0}
    for folder, name, row in ((".logs", "progress", progress), (".work", "metrics", metrics)):
        directory = root / folder / unfinished.flat
        directory.mkdir(parents=True, exist_ok=True)
        write_lines(directory / f"{name}.jsonl", *({**row, "step": step} for step in range(1, 4)))


def read_store(root: Path) -> None:
    """Read the store like verify, gc, runs, show, watch and the web page."""
    opened, records = Store(root), history.runs(root)
    list(verify(opened, deep=True))
    collect.collect(opened, keep=1, delete=False)
    opened.manifests("fetch")
    overview(root)
    for words in (["runs"], *(["show", run] for run in records)):
        options = make_parsers("runs")[0].parse_args([*words, f"store={root}"])
        options.action(options)
    for record in records.values():
        console().print(watch.view(record, watch.rows(root, record)))
    for work in (root / ".work").iterdir():
        attempt.is_held(work)


SETS = ("weights", "adam_m", "adam_v")


def checkpoint(root: Path) -> None:
    write_checkpoint(root, 3, save({"a": np.ones((2, 2), np.float32)}), *SETS)


def read_checkpoint(root: Path) -> object:
    """Read a checkpoint like a run that resumes."""
    state = read_state(root)
    if flaw(root) is None:
        assert [read_set(root, name, None, 0) for name in SETS]
    return state


def logs(root: Path) -> None:
    for number, directory in enumerate(sorted((DATA / "logs" / "failed").iterdir())[:12]):
        for file in (path for path in sorted(directory.rglob("*")) if path.is_file()):
            target = root / (f"worker_{number}.log" if file.suffix == ".log" else f"{number}_{file.name}")
            target.write_bytes(file.read_bytes()[-20_000:])


def read_logs(root: Path) -> object:
    result = diagnose(root)
    return result.lines(), result.to_json()


FORMATS: dict[str, Format] = {
    "safetensors": Format(weights, tensors.load, "model.safetensors", (*BYTES, *4 * (header,))),
    "safetensors_index": Format(sharded, tensors.load, "*", (*TEXT, header)),
    "ckpt": Format(ckpt, tensors.load, "model.ckpt"),
    "strategy_merged": Format(strategy, read_strategy, "merged_ckpt_strategy.ckpt"),
    "strategy_rank": Format(rank_strategy, read_strategy, "ckpt_strategy_rank_0.ckpt"),
    "json_lines": Format(lambda root: write_lines(root / "rows.jsonl", *ROWS), read_rows, "rows.jsonl", TEXT),
    "json_array": Format(json_array, read_rows, "rows.json", TEXT),
    "parquet": Format(parquet, read_rows, "rows.parquet"),
    "mindrecord": Format(mindrecord, lambda root: check_pair(root / "train.mindrecord"), "train.mindrecord*"),
    "huggingface": Format(huggingface, read_huggingface, "*.[jt][sx][ot]*", TEXT),
    "store": Format(store, read_store, "*/*/manifest.json", TEXT),
    "runs": Format(store, read_store, "runs.jsonl", TEXT),
    "progress": Format(store, read_store, ".[lw]o*/*/*", TEXT),
    "checkpoint": Format(checkpoint, read_checkpoint, "**/*.[js]*", (*TEXT, header)),
    "logs": Format(logs, read_logs, "*", TEXT),
}  # fmt: skip
