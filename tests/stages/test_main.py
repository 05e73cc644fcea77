import json

import pytest

from stages import __main__ as entry


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "spec.json"
    values = {"stage": "grpo", "config": {}, "inputs": {}, "output": "o", "work": "w", "progress_file": "p"}
    file.write_text(json.dumps(values), encoding="utf-8")
    return file


@pytest.mark.parametrize("code", [None, 0, 3])
def test_a_stage_that_calls_sys_exit_has_failed(spec, code, monkeypatch, capsys):
    def leave(context):
        raise SystemExit(code)

    monkeypatch.setattr(entry, "entry", lambda name: leave)
    assert entry.main(["grpo", str(spec)]) == 1
    assert "test_main.py:" in capsys.readouterr().err
