"""Both windows' own preprocess_data.py inside our tokenize stage: its ids are ours, template by template."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipeline.config import load
from pipeline.rehearsal.scratch import Scratch
from stages.context import Context
from stages.fetch.config import DatasetConfig
from stages.mindspeed_rl import tokenize
from stages.mindspeed_rl.tokenize import PREFIX, data_files
from tests.upstream.mindspeed_rl import alone
from tests.upstream.mindspeed_rl.conftest import Window

pytestmark = pytest.mark.upstream
ROWS = 40
RECIPE = [f"dataset.train_rows={ROWS}", "dataset.test_rows=16", "layout=dp1_mp1_pp1", "engine.workers=1"]
RECIPE += ["model.hidden_size=32", "model.intermediate_size=64", "train.prompts_per_step=4"]
RECIPE += ["rollout.num_generations=2", "rollout.max_tokens=64", "engine.micro_batch_size=1"]


def read_rows(stem: Path) -> list[list[int]]:
    """Megatron's indexed data set, read from its definition alone: int32 values and their lengths."""
    index = stem.with_suffix(".idx").read_bytes()
    assert index.startswith(b"MMIDIDX\x00\x00")
    version, code, count, documents = struct.unpack_from("<QBQQ", index, 9)
    assert (version, code, documents) == (1, 4, count + 1)
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    values = struct.unpack(f"<{sum(lengths)}i", stem.with_suffix(".bin").read_bytes())
    rows, begun = [], 0
    for length in lengths:
        rows.append(list(values[begun : begun + length]))
        begun += length
    return rows


def check(window: Window, prompt_type: str, root: Path, limit: int = 700) -> None:
    overrides = [*window.overrides, *RECIPE, f"engine.prompt_type={prompt_type}"]
    config = load([*overrides, f"tokenize.max_prompt_length={limit}"])
    scratch = Scratch(root / "scratch", lambda line: None)
    planned = scratch.plan(config.plain())
    inputs = {name: scratch.build(planned, name) for name in ("fetch_dataset", "fetch")}
    output = alone.run(tokenize, config, inputs, root / "tokenize")
    columns = {
        name: read_rows(file.with_suffix(""))
        for name, file in zip(tokenize.COLUMNS, data_files(output / PREFIX)[::2], strict=True)
    }
    rows = json.loads((root / "tokenize/work/train.json").read_text())
    assert len(rows) == ROWS == len(columns["input_ids"])
    work = root / "tokenize/work"
    context = Context("tokenize", config.plain(), inputs, output, work, work / "progress.jsonl")
    encoder = tokenize._encoder(context, context.section(DatasetConfig, "dataset"))
    _, read_train, _, _ = tokenize.both_splits(inputs["fetch_dataset"], encoder.dataset, encoder)
    (file,) = inputs["fetch_dataset"].glob("train.jsonl")
    ours, _ = encoder.encode(list(read_train(file))[:ROWS], with_answers=False)
    assert columns["input_ids"] == [row.prompt for row in ours]
    assert columns["attention_mask"] == [[1] * len(row) for row in columns["input_ids"]]
    tokenizer = Tokenizer.from_file(str(inputs["fetch"] / "tokenizer.json"))
    answers = [tokenizer.decode(row, skip_special_tokens=True) for row in columns["labels"]]
    assert answers == [row["answer"] for row in rows]


@pytest.mark.core
def test_prompts_have_our_ids_and_labels_are_the_answers(window: Window, tmp_path: Path) -> None:
    check(window, "qwen_r1", tmp_path)


@pytest.mark.parametrize("prompt_type", ["qwen3", "qwen_math_r1", "default"])
def test_templates_are_ours(newest: Window, prompt_type: str, tmp_path: Path) -> None:
    check(newest, prompt_type, tmp_path)
