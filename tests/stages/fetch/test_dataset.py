import json

import pytest

from stages.base.errors import ConfigError, InputError
from stages.fetch import dataset as stage
from tests.stages.fetch.settings import FIXTURE, arith_values, context, gsm8k_values, write_lines

GOOD = {"question": "1+1?", "answer": "#### 2"}


def run(directory, path=None, **changes):
    made = context(directory, "fetch_dataset", {"dataset": gsm8k_values(path and str(path), **changes)})
    stage.run(made)
    return made.output, json.loads((made.output / "result.json").read_text())


def test_the_builtin_dataset_is_written_with_its_counts(tmp_path):
    made = context(tmp_path, "fetch_dataset", {"dataset": arith_values(), "seed": 0})
    (made.work / "train.jsonl").symlink_to("/proc/version")  # cannot be written, like a protected file
    stage.run(made)
    result = json.loads((made.output / "result.json").read_text())
    assert result["rows"] == {"train": 300, "test": 40}
    lines = (made.output / "train.jsonl").read_text().splitlines()
    assert len(lines) == 300
    assert set(json.loads(lines[0])) == {"question", "answer"}


def test_local_files_are_linked_not_copied_and_need_no_seed(tmp_path):
    output, result = run(tmp_path, FIXTURE)
    assert (output / "train.jsonl").resolve() == FIXTURE / "train.jsonl"
    assert result["rows"] == {"train": 6, "test": 3}


def test_bad_lines_are_an_error_or_a_count(tmp_path):
    write_lines(tmp_path / "train.jsonl", GOOD, "", GOOD, GOOD)
    write_lines(tmp_path / "test.jsonl", GOOD)
    with pytest.raises(InputError, match=r"train\.jsonl:2: blank line \(1 bad lines of 4, 0\.0% tolerated\)"):
        run(tmp_path / "strict", tmp_path)
    _, result = run(tmp_path / "tolerant", tmp_path, max_bad_share=0.25)  # not more than tolerated
    assert result["rows"]["train"] == 3
    assert result["bad_lines"] == {"train": 1, "test": 0}
    assert result["bad_listed"]["train"] == [{"line": 2, "reason": "blank line"}]


def test_the_share_of_bad_lines_is_that_of_all_shards(tmp_path, hub):
    hub.repositories["dataset/me/rows"] = {
        "train-0.jsonl": b"no JSON\n" + ROWS[0].encode(), "train-1.jsonl": "".join(ROWS[1:9]).encode(),
    }  # fmt: skip
    changes = {
        "source": "modelscope", "hub": {"id": "me/rows", "revision": "v1"},
        "files": files("train-*.jsonl", None), "test_rows": 2,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELSCOPE_ENDPOINT", hub.url)
        _, result = run(tmp_path / "1", max_bad_share=0.1, **changes)
        with pytest.raises(InputError, match=r"train-0\.jsonl:1: not JSON.*1 bad lines of 10"):
            run(tmp_path / "2", max_bad_share=0.09, **changes)
    assert (result["rows"]["train"], result["bad_lines"]["train"]) == (7, 1)
    assert [line["line"] for line in result["bad_listed"]["train"]] == [1]


def test_a_file_of_another_kind_is_refused_with_those_that_are_read(tmp_path):
    (tmp_path / "train.csv").write_text("question,answer\n1+1?,#### 2\n")
    with pytest.raises(InputError, match=r"csv:1: not JSON.* or give JSON lines, a JSON array or Parquet"):
        run(tmp_path / "out", tmp_path / "train.csv", test_rows=1)


def test_errors_name_the_file_and_the_key(tmp_path):
    write_lines(tmp_path / "train.jsonl", GOOD)
    with pytest.raises(InputError, match=r"test\.jsonl.*dataset\.test_path"):
        run(tmp_path / "1", tmp_path)
    with pytest.raises(InputError, match=r"dataset\.train_rows=7"):
        run(tmp_path / "2", FIXTURE, train_rows=7)
    with pytest.raises(ConfigError, match=r"dataset\.source=local: must be url"):
        run(tmp_path / "3", source="local")


ROWS = [json.dumps(GOOD | {"question": f"{i}?"}) + "\n" for i in range(10)]


def files(train, test, sha256=None):
    named = {"train": {"name": train, "sha256": sha256}, "test": None}
    return named | ({"test": {"name": test, "sha256": None}} if test else {})


def test_files_by_address_become_the_splits_with_their_record(tmp_path, hub):
    hub.plain = {"/a/questions.jsonl": "".join(ROWS).encode(), "/b/held.jsonl": ROWS[0].encode()}
    output, result = run(tmp_path, files=files(f"{hub.url}/a/questions.jsonl", f"{hub.url}/b/held.jsonl"))
    assert (output / "train.jsonl").read_text() == "".join(ROWS)
    assert result["files"] == {"train": ["train.jsonl"], "test": ["test.jsonl"]}
    assert result["rows"] == {"train": 10, "test": 1}
    assert [source["origin"] for source in result["sources"]] == [
        f"{hub.url}/a/questions.jsonl",
        f"{hub.url}/b/held.jsonl",
    ]


def test_addresses_that_differ_in_their_query_only_are_different_files(tmp_path, hub):
    hub.plain = {"/get?id=1": "".join(ROWS[:6]).encode(), "/get?id=2": "".join(ROWS[6:]).encode()}
    output, result = run(tmp_path, files=files(f"{hub.url}/get?id=1", f"{hub.url}/get?id=2"))
    assert (output / "train.jsonl").read_text() == "".join(ROWS[:6])
    assert (output / "test.jsonl").read_text() == "".join(ROWS[6:])
    assert result["rows"] == {"train": 6, "test": 4}


def test_shards_of_a_repository_keep_their_order(tmp_path, hub, monkeypatch):
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    shards = {f"data/train-{i}.jsonl": "".join(ROWS[5 * i : 5 * i + 5]).encode() for i in (1, 0)}
    hub.repositories["dataset/me/rows"] = {**shards, "data/test-0.jsonl": ROWS[0].encode(), "README.md": b"x"}
    output, result = run(
        tmp_path,
        source="modelscope",
        hub={"id": "me/rows", "revision": "v1"},
        files=files("data/train-*.jsonl", "data/test-*.jsonl"),
    )
    assert result["files"] == {"train": ["train-00000.jsonl", "train-00001.jsonl"], "test": ["test.jsonl"]}
    assert (output / "train-00001.jsonl").read_text() == "".join(ROWS[5:])
    assert result["rows"] == {"train": 10, "test": 1}
    assert "README.md" not in {seen.file for seen in hub.requests}


def test_without_a_held_out_file_rows_of_train_are_counted_for_it(tmp_path, hub):
    hub.plain = {"/a.jsonl": "".join(ROWS).encode()}
    only_train = files(f"{hub.url}/a.jsonl", None)
    _, result = run(tmp_path / "1", files=only_train, test_rows=3)
    assert (result["rows"], result["files"]["test"]) == ({"train": 7, "test": 3}, [])
    with pytest.raises(
        InputError, match=r"dataset\.test_rows=10: leaves nothing of the 10 rows for training"
    ):
        run(tmp_path / "2", files=only_train, test_rows=10)
    with pytest.raises(InputError, match=r"dataset\.train_rows=8"):
        run(tmp_path / "3", files=only_train, test_rows=3, train_rows=8)


def test_a_local_file_without_a_held_out_file(tmp_path):
    rows = write_lines(tmp_path / "rows.jsonl", *[GOOD] * 5)
    _, result = run(tmp_path / "1", rows, test_rows=2)
    assert result["rows"] == {"train": 3, "test": 2}
    assert result["files"] == {"train": ["train.jsonl"], "test": []}
    with pytest.raises(InputError, match=r"or dataset\.test_rows to hold out rows"):
        run(tmp_path / "2", rows)
