import json

import pytest

from stages.errors import ConfigError, InputError
from stages.fetch import dataset as stage
from tests.stages.fetch.settings import (
    FIXTURE,
    arith_values,
    context,
    dataset,
    fetch,
    fetch_values,
    gsm8k_values,
    write_lines,
)

GOOD = {"question": "1+1?", "answer": "#### 2"}


def test_the_builtin_dataset_is_written_with_its_counts(tmp_path):
    run = context(tmp_path, "fetch_dataset", {"dataset": arith_values(), "seed": 0})
    stage.run(run)
    result = json.loads((run.output / "result.json").read_text())
    assert result["rows"] == {"train": 300, "test": 40}
    lines = (run.output / "train.jsonl").read_text().splitlines()
    assert len(lines) == 300
    assert set(json.loads(lines[0])) == {"question", "answer"}


def test_two_runs_write_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        stage.fetch_dataset(dataset(), tmp_path / name, seed=7)
    for file in ("train.jsonl", "test.jsonl"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_local_files_are_linked_not_copied_and_need_no_seed(tmp_path):
    run = context(tmp_path, "fetch_dataset", {"dataset": gsm8k_values(), "fetch": fetch_values()})
    stage.run(run)
    assert (run.output / "train.jsonl").resolve() == FIXTURE / "train.jsonl"
    assert json.loads((run.output / "result.json").read_text())["rows"] == {"train": 6, "test": 3}


def test_bad_lines_are_an_error_or_a_count(tmp_path):
    write_lines(tmp_path / "train.jsonl", GOOD, "", GOOD, GOOD)
    write_lines(tmp_path / "test.jsonl", GOOD)
    with pytest.raises(InputError, match=r"train\.jsonl:2: blank line \(1 bad lines of 4, 0% tolerated\)"):
        stage.fetch_dataset(dataset(path=str(tmp_path)), tmp_path, fetch=fetch())
    (tmp_path / "out").mkdir()
    tolerant = dataset(path=str(tmp_path), max_bad_share=0.3)
    result = stage.fetch_dataset(tolerant, tmp_path / "out", fetch=fetch())
    assert result["rows"]["train"] == 3
    assert result["bad_lines"] == {"train": 1, "test": 0}
    assert result["bad_listed"]["train"] == [{"line": 2, "reason": "blank line"}]


def test_errors_name_the_file_and_the_key(tmp_path):
    (tmp_path / "out").mkdir()
    write_lines(tmp_path / "train.jsonl", GOOD)
    with pytest.raises(InputError, match=r"test\.jsonl.*dataset\.test_path"):
        stage.fetch_dataset(dataset(path=str(tmp_path)), tmp_path / "out", fetch=fetch())
    with pytest.raises(InputError, match=r"dataset\.train_rows=7"):
        stage.fetch_dataset(dataset(path=str(FIXTURE), train_rows=7), tmp_path, fetch=fetch())
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        stage.fetch_dataset(dataset(path=None, source="local"), tmp_path, fetch=fetch())


def test_columns_can_be_named(tmp_path):
    for name in ("train", "test"):
        write_lines(tmp_path / f"{name}.jsonl", {"problem": "a", "solution": "b"})
    (tmp_path / "out").mkdir()
    named = dataset(path=str(tmp_path), columns={"prompt": "problem", "answer": "solution"})
    assert stage.fetch_dataset(named, tmp_path / "out", fetch=fetch())["rows"]["train"] == 1
