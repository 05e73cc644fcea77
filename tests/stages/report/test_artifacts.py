import pytest

from stages.report import artifacts
from stages.report.artifacts import Run


def test_a_whole_run_leaves_no_note(run):
    loaded = Run.load(run)
    assert list(loaded.manifests) == list(artifacts.STAGE_ORDER)
    assert len(loaded.rows("grpo", "metrics.jsonl")) == 80
    assert loaded.section("train")["beta"] == 0.01 and loaded.section("absent") == {}
    assert loaded.notes == []


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b""])
def test_broken_json_becomes_a_note(run, content):
    (run["evaluate"] / "result.json").write_bytes(content)
    loaded = Run.load(run)
    assert loaded.result("evaluate") == {}
    assert len(loaded.notes) == 1 and loaded.notes[0].startswith("evaluate/result.json")


def test_broken_lines_are_left_out_and_counted(run):
    (run["grpo"] / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2\n\n7\n{"step": 3}\n{"st')
    loaded = Run.load(run)
    assert [row["step"] for row in loaded.rows("grpo", "metrics.jsonl")] == [1, 3]
    assert loaded.notes == ["grpo/metrics.jsonl: 3 broken line(s) left out."]


def test_of_a_huge_file_only_the_end_is_read(run, monkeypatch):
    monkeypatch.setattr(artifacts, "MAX_JSONL_BYTES", 100)
    (run["grpo"] / "completions.jsonl").write_text("".join(f'{{"step": {i:02d}1}}\n' for i in range(11, 99)))
    loaded = Run.load(run)
    rows = loaded.rows("grpo", "completions.jsonl")
    assert 3 <= len(rows) <= 7 and rows[-1]["step"] == 981
    assert "only its last" in loaded.notes[0]


def test_absent_stages_and_files_are_named(run):
    del run["sft"]
    (run["grpo"] / "metrics.jsonl").unlink()
    loaded = Run.load(run)
    assert loaded.rows("sft", "metrics.jsonl") == [] and loaded.rows("grpo", "metrics.jsonl") == []
    assert loaded.notes == ["sft: not part of this run.", "grpo/metrics.jsonl: not there."]
