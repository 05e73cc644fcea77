import json

import pytest

from stages.base.errors import ConfigError, InputError
from stages.fetch import dataset as stage
from tests.stages.fetch.settings import (
    FIXTURE,
    arith_values,
    context,
    dataset,
    fetch,
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


def test_local_files_are_linked_not_copied_and_need_no_seed(tmp_path):
    run = context(tmp_path, "fetch_dataset", {"dataset": gsm8k_values()})
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


ROWS = [json.dumps(GOOD | {"question": f"{i}?"}) + "\n" for i in range(10)]


def remote(tmp_path, **changes):
    values = gsm8k_values(None, **changes)
    run = context(tmp_path, "fetch_dataset", {"dataset": values})
    return run, values


def files(train, test, sha256=None):
    named = {"train": {"name": train, "sha256": sha256}, "test": None}
    return named | ({"test": {"name": test, "sha256": None}} if test else {})


def test_files_by_address_become_the_splits_with_their_record(tmp_path, hub):
    hub.plain = {"/a/questions.jsonl": "".join(ROWS).encode(), "/b/held.jsonl": ROWS[0].encode()}
    run, _ = remote(tmp_path, files=files(f"{hub.url}/a/questions.jsonl", f"{hub.url}/b/held.jsonl"))
    stage.run(run)
    assert (run.output / "train.jsonl").read_text() == "".join(ROWS)
    result = json.loads((run.output / "result.json").read_text())
    assert result["files"] == {"train": ["train.jsonl"], "test": ["test.jsonl"]}
    assert result["rows"] == {"train": 10, "test": 1}
    assert [source["origin"] for source in result["sources"]] == [
        f"{hub.url}/a/questions.jsonl",
        f"{hub.url}/b/held.jsonl",
    ]


def test_shards_of_a_repository_keep_their_order(tmp_path, hub, monkeypatch):
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    shards = {f"data/train-{i}.jsonl": "".join(ROWS[5 * i : 5 * i + 5]).encode() for i in (1, 0)}
    hub.repositories["dataset/me/rows"] = {**shards, "data/test-0.jsonl": ROWS[0].encode(), "README.md": b"x"}
    run, _ = remote(
        tmp_path,
        source="modelscope",
        hub={"id": "me/rows", "revision": "v1"},
        files=files("data/train-*.jsonl", "data/test-*.jsonl"),
    )
    stage.run(run)
    result = json.loads((run.output / "result.json").read_text())
    assert result["files"] == {"train": ["train-00000.jsonl", "train-00001.jsonl"], "test": ["test.jsonl"]}
    assert (run.output / "train-00001.jsonl").read_text() == "".join(ROWS[5:])
    assert result["rows"] == {"train": 10, "test": 1}
    assert "README.md" not in {seen.file for seen in hub.requests}


def test_a_digest_of_a_repository_file_must_hold(tmp_path, hub, monkeypatch):
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    hub.repositories["dataset/me/rows"] = {"a.jsonl": "".join(ROWS).encode(), "b.jsonl": ROWS[0].encode()}
    where = {"source": "modelscope", "hub": {"id": "me/rows", "revision": "master"}}
    run, _ = remote(tmp_path / "1", **where, files=files("a.jsonl", "b.jsonl", "0" * 64))
    with pytest.raises(InputError, match=r"dataset\.files\.train\.sha256=0+: a\.jsonl has sha256"):
        stage.run(run)
    run, _ = remote(tmp_path / "2", **where, files=files("*.jsonl", "b.jsonl", "0" * 64))
    with pytest.raises(InputError, match=r"is the digest of one file, .* matches 2"):
        stage.run(run)


def test_without_a_held_out_file_the_last_rows_of_train_are_kept_for_it(tmp_path, hub):
    hub.plain = {"/a.jsonl": "".join(ROWS).encode()}
    run, _ = remote(tmp_path / "1", files=files(f"{hub.url}/a.jsonl", None), test_rows=3)
    stage.run(run)
    result = json.loads((run.output / "result.json").read_text())
    assert (result["rows"], result["files"]["test"]) == ({"train": 7, "test": 3}, [])
    run, _ = remote(tmp_path / "2", files=files(f"{hub.url}/a.jsonl", None), test_rows=10)
    with pytest.raises(
        InputError, match=r"dataset\.test_rows=10: leaves nothing of the 10 rows for training"
    ):
        stage.run(run)
    run, _ = remote(tmp_path / "3", files=files(f"{hub.url}/a.jsonl", None), test_rows=3, train_rows=8)
    with pytest.raises(InputError, match=r"dataset\.train_rows=8"):
        stage.run(run)


def test_a_local_file_without_held_out_rows_beside_it(tmp_path):
    write_lines(tmp_path / "rows.jsonl", *[GOOD] * 5)
    local = dataset(path=str(tmp_path / "rows.jsonl"), test_rows=2)
    (tmp_path / "out").mkdir()
    result = stage.fetch_dataset(local, tmp_path / "out", fetch=fetch())
    assert (result["rows"], result["files"]) == (
        {"train": 3, "test": 2},
        {"train": ["train.jsonl"], "test": []},
    )
    (tmp_path / "out2").mkdir()
    with pytest.raises(InputError, match=r"or dataset\.test_rows to hold out the last rows"):
        stage.fetch_dataset(dataset(path=str(tmp_path / "rows.jsonl")), tmp_path / "out2", fetch=fetch())
