import json
import re
from collections import Counter

import pytest

from stages.base.errors import ConfigError, InputError
from stages.fetch import dataset as stage
from stages.fetch.arith import generate
from stages.fetch.config import ArithConfig
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
