import hashlib
import json

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.fetch import dataset as fetch_dataset
from stages.fetch import stage as fetch
from stages.fetch.tokenizer_files import write_trained
from stages.grpo.data import read_examples
from stages.tokenize import stage
from stages.tokenize.records import read_columns
from tests.stages.fetch.settings import (
    FIXTURE,
    GSM8K,
    QWEN,
    ROOT,
    SHARED,
    arith_values,
    context,
    dataset,
    fetch_values,
    gsm8k_values,
    model_values,
    needs_shared,
    tokenize,
    values,
)
from tests.stages.fetch.test_records import write


def run_all(tmp_path, data, settings, examples=None, **model):
    config = {"model": model_values(**model), "dataset": data, "tokenize": settings}
    config |= {"sft_data": examples} if examples else {}
    config |= {"seed": 0, "fetch": fetch_values()}
    first = context(tmp_path, "fetch", config)
    fetch.run(first)
    second = context(tmp_path, "fetch_dataset", config)
    fetch_dataset.run(second)
    third = context(tmp_path, "tokenize", config, fetch=first.output, fetch_dataset=second.output)
    stage.run(third)
    return third.output


@pytest.mark.parametrize("kind", ["alpaca", "conversations"])
def test_supervised_examples_of_a_user(tmp_path, kind):
    turns = [{"role": "user", "content": "Say 7."}, {"role": "assistant", "content": "7"}]
    row = {"instruction": "Say 7.", "input": "", "output": "7"} if kind == "alpaca" else {"messages": turns}
    file = tmp_path / "own.json"
    file.write_text(json.dumps([row] * 5))
    settings = values("tokenize", "arith") | {"sft_length": 96}
    output = run_all(tmp_path, arith_values(), settings, {"path": str(file), "kind": kind})
    files = json.loads((output / "result.json").read_text())["files"]
    assert (files["train"]["records"], files["sft"]["records"]) == (300, 5)
    assert files["sft"]["samples"][0]["learnt"].startswith("7<|im_end|>")
    columns = read_columns(output / "sft.mindrecord", ["input_ids", "labels"])
    assert {array.shape for array in columns.values()} == {(5, 97)}  # one id more: mindformers shifts
    read = read_examples(output / "sft.mindrecord")
    assert len(read) == 5 and read.mask.sum(1).tolist() == [float((columns["labels"][0] != -100).sum())] * 5


def test_examples_that_end_otherwise_than_completions_are_refused(tmp_path):
    """A model that learnt to end with <|im_end|> would write on in grpo, whose completions end otherwise."""
    file = tmp_path / "own.json"
    file.write_text(json.dumps([{"instruction": "Say 7.", "output": "7"}] * 5))
    settings = values("tokenize", "arith") | {"sft_length": 96}
    examples = {"path": str(file), "kind": "alpaca"}
    with pytest.raises(InputError, match=r"ends answers with '<\|im_end\|>'"):
        run_all(tmp_path, arith_values(), settings, examples, eos_token_id=[0])


def test_a_file_is_tokenized_and_existing_files_are_not_replaced(tmp_path):
    write_trained(["1+2=3"] * 4, 300, tmp_path)
    lengths = tokenize("gsm8k", sft_length=2000, max_prompt_length=900)
    encoder = stage.make_encoder(tmp_path, None, dataset(path=str(FIXTURE)), lengths)
    target = tmp_path / "target"
    card = stage.tokenize_path(encoder, FIXTURE / "train.jsonl", target, sft=True)
    assert card["train"]["rows_out"] == 6
    assert len(read_columns(target / "train.mindrecord", ["prompt_ids"])["prompt_ids"]) == 6
    files = {file.name: file.read_bytes() for file in target.iterdir()}
    stored = ("train.mindrecord", "train_sft.mindrecord")
    assert files.keys() == {*stored, *(f"{name}.db" for name in stored)}
    with pytest.raises(InputError, match=r"train\.mindrecord: exists already"):
        stage.tokenize_path(encoder, FIXTURE / "train.jsonl", target)
    assert {file.name: file.read_bytes() for file in target.iterdir()} == files
    first = stage.make_encoder(tmp_path, None, dataset(path=str(FIXTURE), train_rows=2), encoder.config)
    card = stage.tokenize_path(first, FIXTURE / "train.jsonl", tmp_path / "first")
    assert card["train"]["rows_out"] == 2
    (target / "train.mindrecord").unlink()  # its index would not fit to a new file
    with pytest.raises(InputError, match=r"train\.mindrecord\.db: exists already"):
        stage.tokenize_path(encoder, FIXTURE / "train.jsonl", target)


@pytest.mark.long  # in the default suite: the test after it
@needs_shared
@pytest.mark.parity
def test_gsm8k_in_compat_mode_equals_mindrlhfs_records(tmp_path):
    golden = json.loads((SHARED / "data" / "gsm8k" / "rlhf_data_golden.json").read_text())
    settings = tokenize("gsm8k", compat="mindrlhf", max_prompt_length=2048, seq_length=4096)
    encoder = stage.make_encoder(QWEN, None, dataset(path=str(GSM8K)), settings)
    card = stage.tokenize_path(encoder, GSM8K / "train.jsonl", tmp_path)
    assert card["train"]["rows_out"] == golden["rows"]
    for name, expected in golden["columns"].items():
        column = read_columns(tmp_path / "train.mindrecord", [name])[name]
        assert column.dtype == np.dtype(expected["dtype"])
        assert list(column.shape[1:]) == expected["last_shape"]
        assert hashlib.sha256(column.tobytes()).hexdigest() == expected["sha256"], name


OPENR1 = ROOT / "tests" / "data" / "openr1_math"
GOLDEN = json.loads((OPENR1 / "rlhf_data_golden.json").read_text())


@needs_shared
@pytest.mark.parity
@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=lambda case: f"{case['dataset_type']}-{case['seq_length']}"
)
def test_openr1_math_in_compat_mode_equals_mindrlhfs_records(tmp_path, case):
    solution = {"openR1math": "answer", "other": "prompt_and_answer"}[case["dataset_type"]]
    # whatever the keys: rlhf_data.py reads question and answer
    data = dataset(path=str(OPENR1), solution=solution, columns={"prompt": "problem", "answer": "solution"})
    lengths = {name: case[name] for name in ("max_prompt_length", "seq_length")}
    encoder = stage.make_encoder(QWEN, None, data, tokenize("gsm8k", compat="mindrlhf", **lengths))
    card = stage.tokenize_path(encoder, OPENR1 / "train.jsonl", tmp_path)["train"]
    assert card["rows_out"] == case["rows"]
    assert card["truncated"] == {name: count for name, count in case["truncated"].items() if count}
    for name, expected in case["columns"].items():
        column = read_columns(tmp_path / "train.mindrecord", [name])[name]
        assert (column.dtype.name, list(column.shape)) == (expected["dtype"], expected["shape"])
        assert hashlib.sha256(column.tobytes()).hexdigest() == expected["sha256"], name


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_rows_are_held_out_of_several_files_where_there_is_no_test_file(tmp_path, suffix):
    fetched = tmp_path / "fetch_dataset"
    fetched.mkdir()
    rows = [{"problem": f"{i}+1?", "answer": str(i + 1)} for i in range(60)]
    for number in range(2):
        write(fetched, f"train-0000{number}{suffix}", rows[number::2])
    data = gsm8k_values(solution="answer", columns={"prompt": "problem", "answer": "answer"}, test_rows=9)
    config = {"model": model_values(), "dataset": data, "tokenize": values("tokenize", "arith")}
    model = context(tmp_path, "fetch", config | {"dataset": arith_values(), "seed": 0})
    fetch.run(model)
    made = context(tmp_path, "tokenize", config, fetch=model.output, fetch_dataset=fetched)
    stage.run(made)
    files = [made.output / f"{name}.mindrecord" for name in ("train", "test")]
    train, test = ({*map(tuple, read_columns(file, ["prompt_ids"])["prompt_ids"].tolist())} for file in files)
    assert (len(train), len(test), len(train | test)) == (51, 9, 60)
