"""Upstream's own preprocess_data.py inside our tokenize stage: its ids are ours."""

import json
import struct
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipeline.config.load import load
from stages.base.context import Context
from stages.engines.mindspeed_rl import tokenize
from stages.engines.mindspeed_rl.tokenize import PREFIX, data_files
from stages.fetch.config import DatasetConfig
from stages.fetch.stage import run as fetch
from tests.upstream.mindspeed_rl import alone

pytestmark = [pytest.mark.upstream, pytest.mark.core]
ROWS, HELD_OUT = 24, 8
RECIPE = [
    f"dataset.train_rows={ROWS}", f"dataset.test_rows={HELD_OUT}", "engine.workers=1",
    "tokenize.max_prompt_length=1500", "model.max_position_embeddings=4096",
]  # fmt: skip


def read_rows(stem):
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


def make_inputs(config, root):
    """Write a model like fetch and rows like fetch_dataset."""
    inputs = {stage: root / stage for stage in ("fetch", "fetch_dataset")}
    for directory in inputs.values():
        directory.mkdir()
    fetch(Context("fetch", config.plain(), {}, inputs["fetch"], root, root / "progress"))
    rows = [
        {
            "question": f"Tom has {n}  {{{{content}}}}\nand {n + 1} 苹果. <think>",
            "answer": f"#### {2 * n + 1}",
        }
        for n in range(ROWS + HELD_OUT)
    ]
    for split, some in (("train", rows[:ROWS]), ("test", rows[ROWS:])):
        text = "".join(json.dumps(item) + "\n" for item in some)
        (inputs["fetch_dataset"] / f"{split}.jsonl").write_text(text)
    return inputs


def test_prompts_have_our_ids_and_labels_are_the_answers(upstream, tmp_path):
    config = load([*upstream.overrides, *RECIPE])
    inputs = make_inputs(config, tmp_path)
    output = alone.run(tokenize, config, inputs, tmp_path / "theirs")
    files = [file.name for file in data_files(Path(PREFIX))]
    columns = {
        name: read_rows((output / file).with_suffix(""))
        for name, file in zip(tokenize.COLUMNS, files[::2], strict=True)
    }
    work = tmp_path / "theirs/work"
    rows = json.loads((work / "train.json").read_text())
    assert len(rows) == ROWS == len(columns["input_ids"])
    context = Context("tokenize", config.plain(), inputs, output, work, work / "progress.jsonl")
    encoder = tokenize.encoder_of(context, context.section(DatasetConfig, "dataset"))
    train, _ = tokenize.splits(inputs["fetch_dataset"], encoder.dataset, encoder.columns)
    actual, _ = encoder.encode(list(train.read(train.files[0])), with_answers=False)
    assert columns["input_ids"] == [row.prompt for row in actual]
    assert columns["attention_mask"] == [[1] * len(row) for row in columns["input_ids"]]
    tokenizer = Tokenizer.from_file(str(inputs["fetch"] / "tokenizer.json"))
    answers = [tokenizer.decode(row, skip_special_tokens=True) for row in columns["labels"]]
    assert answers == [row["answer"] for row in rows]
