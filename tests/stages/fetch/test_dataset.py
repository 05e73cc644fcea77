import gzip
import json
import re
from collections import Counter

import pytest

from stages.base.errors import ConfigError, InputError
from stages.base.reader import read
from stages.fetch import dataset as stage
from stages.fetch.arith import generate
from stages.fetch.config import ArithConfig, ColumnsConfig, DatasetConfig
from stages.fetch.records import count_rows, read_lines, split_sources
from stages.fetch.training import training_rows
from stages.fetch.user_files import external_files, has_test_file
from tests.stages.fetch.settings import (
    FIXTURE,
    assert_separate,
    context,
    fetch_values,
    gsm8k_values,
    write_lines,
)

GOOD = {"question": "1+1?", "answer": "#### 2"}


def run(directory, path=None, **changes):
    made = context(directory, "fetch_dataset", {"dataset": gsm8k_values(path and str(path), **changes)})
    stage.run(made)
    return made.output, json.loads((made.output / "result.json").read_text())


def test_bad_lines_are_an_error_or_a_count(tmp_path):
    write_lines(tmp_path / "train.jsonl", GOOD, "", GOOD, GOOD)
    write_lines(tmp_path / "test.jsonl", GOOD)
    with pytest.raises(InputError, match=r"train\.jsonl:2: blank line \(1 bad lines of 4, 0\.0% tolerated\)"):
        run(tmp_path / "strict", tmp_path)
    _, result = run(tmp_path / "tolerant", tmp_path, max_bad_share=0.25)  # not more than tolerated
    assert result["rows"]["train"] == 3
    assert result["bad_lines"] == {"train": 1, "test": 0}
    assert result["bad_listed"]["train"] == [{"line": 2, "reason": "blank line"}]


ROWS = [json.dumps(GOOD | {"question": f"{i}?"}) + "\n" for i in range(10)]


def files(train, test, sha256=None):
    named = {"train": {"name": train, "sha256": sha256}, "test": None}
    return named | ({"test": {"name": test, "sha256": None}} if test else {})


def test_local_files_are_linked_not_copied(tmp_path):
    output, result = run(tmp_path / "1", FIXTURE)
    assert (output / "train.jsonl").resolve() == FIXTURE / "train.jsonl"
    assert result["rows"] == {"train": 6, "test": 3}
    rows = write_lines(tmp_path / "rows.jsonl", *[GOOD] * 5)
    with pytest.raises(InputError, match=r"dataset\.test_path.* or dataset\.test_rows to hold out rows"):
        run(tmp_path / "2", rows)
    with pytest.raises(ConfigError, match=r"dataset\.source=local: must be url"):
        run(tmp_path / "3", source="local")


NAMED = (
    ("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "test-00000-of-00001.jsonl"),
    ("train-00001-of-00002.jsonl", "train-00002-of-00002.jsonl", "test.jsonl"),  # counted from 1
    ("train-0.jsonl", "train-10.jsonl", "test-0.jsonl"),
    ("data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/test-00000-of-00001.jsonl"),
    ("train-00000-of-00002.jsonl.gz", "train-00001-of-00002.jsonl.gz", "test.JSONL.GZ"),
    ("TRAIN-00000-of-00002.json", "TRAIN-00001-of-00002.json", "Test.JSON"),
    ("train-00000-of-00002.PARQUET", "train-00001-of-00002.PARQUET", "test.Parquet"),
)


def write_rows(path, rows):
    """Write JSON lines, compressed or as Parquet if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(rows).encode()
    if path.suffix.lower() == ".parquet":
        pytest.importorskip("pyarrow")
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist([json.loads(row) for row in rows]), path)
    else:
        path.write_bytes(gzip.compress(text) if path.suffix.lower() == ".gz" else text)


@pytest.mark.parametrize("names", NAMED, ids=lambda names: names[0])
def test_shards_and_compressed_files_of_a_directory_are_read_in_order(tmp_path, names):
    source = tmp_path / "source"
    for name, rows in zip(names, (ROWS[:4], ROWS[4:7], ROWS[7:]), strict=True):
        write_rows(source / name, rows)
    output, result = run(tmp_path / "run", source)
    assert result["rows"] == {"train": 7, "test": 3}
    columns = ColumnsConfig(prompt="question", answer="answer")
    for split, expected in (("train", range(7)), ("test", range(7, 10))):
        rows = [row.prompt for file in split_sources(output, split) for row in read_lines(file, columns)]
        assert rows == [f"{number}?" for number in expected]
    assert count_rows(split_sources(output, "train")) >= 7
    config = read(DatasetConfig, gsm8k_values(str(source)), "dataset")
    assert external_files(config) == tuple(source / name for name in names)
    assert [row.prompt for row in training_rows(config, columns, 0, None)] == [f"{i}?" for i in range(7)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("train-00000-of-00003.jsonl", "train-00002-of-00003.jsonl"),
            r"train-00001-of-00003\.jsonl: is not a file",
        ),
        (("train-00000-of-00001.jsonl", "train-00000-of-00002.jsonl"), "has several sets of shards of train"),
        (
            ("main/train-00000-of-00001.jsonl", "socratic/train.jsonl"),
            "training files in main, socratic only",
        ),
        (("train/data-00000-of-00001.arrow",), "Arrow files of datasets.save_to_disk"),
        (("train.csv", "notes.txt"), r"has no train\.\* .*, but notes\.txt, train\.csv"),
        ((), "it is empty"),
    ],
)
def test_a_directory_without_all_training_files_is_refused_with_what_it_has(tmp_path, names, message):
    source = tmp_path / "source"
    source.mkdir()
    for name in names:
        write_rows(source / name, ROWS)
    with pytest.raises((ConfigError, InputError), match=message):
        run(tmp_path / "run", source, test_rows=1)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl.zst", "rows.ZIP", "rows.arrow"])
def test_a_file_of_another_format_is_refused_with_its_format(tmp_path, name):
    write_rows(tmp_path / name, ROWS)
    with pytest.raises(InputError, match="which is not read; convert it to JSON lines"):
        run(tmp_path / "run", tmp_path / name, test_rows=1)


def test_a_damaged_compressed_file_is_an_error(tmp_path):
    whole = gzip.compress("".join(ROWS * 100).encode())
    for number, content in enumerate(
        (whole[: len(whole) // 2], b"no gzip", whole[:20] + b"\xff" + whole[21:])
    ):
        file = tmp_path / f"{number}.jsonl.gz"
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"\.gz: can't be read"):
            run(tmp_path / f"run{number}", file, test_rows=1)


def test_addresses_that_differ_in_their_query_only_are_different_files(tmp_path, hub):
    hub.plain = {"/get?id=1": "".join(ROWS[:6]).encode(), "/get?id=2": "".join(ROWS[6:]).encode()}
    output, result = run(tmp_path, files=files(f"{hub.url}/get?id=1", f"{hub.url}/get?id=2"))
    assert (output / "train.jsonl").read_text() == "".join(ROWS[:6])
    assert (output / "test.jsonl").read_text() == "".join(ROWS[6:])
    assert result["files"] == {"train": ["train.jsonl"], "test": ["test.jsonl"]}
    assert result["rows"] == {"train": 6, "test": 4}


def test_an_artifact_shares_no_file_with_the_users_cache(tmp_path, hub):
    hub.plain = {"/rows.jsonl": "".join(ROWS).encode()}
    data = gsm8k_values(None, files=files(f"{hub.url}/rows.jsonl", None), test_rows=2)
    fetching = fetch_values(cache_dir=str(tmp_path / "cache"))
    made = context(tmp_path, "fetch_dataset", {"dataset": data, "fetch": fetching})
    stage.run(made)
    assert (made.output / "train.jsonl").read_text() == "".join(ROWS)
    assert_separate(tmp_path / "cache", made.output)


def test_shards_keep_their_order_and_their_bad_lines_are_counted_together(tmp_path, hub, monkeypatch):
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    shards = {"train-1.jsonl": "".join(ROWS[1:9]), "train-0.jsonl": "no JSON\n" + ROWS[0], "README.md": "x"}
    hub.repositories["dataset/me/rows"] = {name: text.encode() for name, text in shards.items()}
    changes = {
        "source": "modelscope", "hub": {"id": "me/rows", "revision": "v1"},
        "files": files("train-*.jsonl", None), "test_rows": 2,
    }  # fmt: skip
    output, result = run(tmp_path / "1", max_bad_share=0.1, **changes)
    assert result["files"] == {"train": ["train-00000.jsonl", "train-00001.jsonl"], "test": []}
    assert (output / "train-00001.jsonl").read_text() == shards["train-1.jsonl"]
    assert "README.md" not in {seen.file for seen in hub.requests}
    assert (result["rows"], result["bad_lines"]["train"]) == ({"train": 7, "test": 2}, 1)
    assert [line["line"] for line in result["bad_listed"]["train"]] == [1]
    with pytest.raises(InputError, match=r"train-0\.jsonl:1: not JSON.*1 bad lines of 10"):
        run(tmp_path / "2", max_bad_share=0.09, **changes)


def test_rows_must_be_left_for_training(tmp_path, hub):
    hub.plain = {"/a.jsonl": "".join(ROWS).encode()}
    only_train = files(f"{hub.url}/a.jsonl", None)
    with pytest.raises(InputError, match=r"dataset\.test_rows=10: leaves nothing of the 10 rows"):
        run(tmp_path / "2", files=only_train, test_rows=10)
    with pytest.raises(InputError, match=r"dataset\.train_rows=8"):
        run(tmp_path / "3", files=only_train, test_rows=3, train_rows=8)


def test_questions_are_distinct_sums_of_the_configured_lengths_with_their_answers():
    def addends(question):
        return tuple(map(int, re.findall(r"\d", question)))

    config = ArithConfig(min_addends=3, max_addends=5, worked_share=0.4)
    train, test = generate(config, seed=3, train_rows=6000, test_rows=1024)
    questions = [question for question, _ in train + test]
    assert (len(train), len(test), len(set(questions))) == (6000, 1024, 7024)
    assert not {addends(q) for q, _ in train} & {addends(q) for q, _ in test}
    for question, answer in train + test:
        assert answer.rpartition("#### ")[2] == str(sum(addends(question)))
        for line in answer.split("\n")[:-1]:
            left, right = line.split("=")
            assert eval(left) == int(right)
    lengths = Counter(len(addends(question)) for question, _ in train)
    assert set(lengths) == {3, 4, 5} and min(lengths.values()) > 1800
    assert sum("=" in answer for _, answer in train) / 6000 == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize(("path", "found"), [("mine.jsonl", False), ("data/train.jsonl", True), ("", True)])
def test_the_held_out_file_is_beside_the_training_file(tmp_path, path, found):
    (tmp_path / "data").mkdir()
    for name in ("mine.jsonl", "data/train.jsonl", "data/test.jsonl"):
        (tmp_path / name).write_text('{"question": "1+1", "answer": "2"}\n')
    assert has_test_file(str(tmp_path / path), None) is found
