import pytest

from stages.report.artifacts import Run


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
