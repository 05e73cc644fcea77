import json
import subprocess
import sys

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


def test_the_scheduler_of_msrun_may_exit(spec, monkeypatch):
    monkeypatch.setenv("MS_ROLE", "MS_SCHED")

    def serve(context):
        raise SystemExit(0)

    monkeypatch.setattr(entry, "entry", lambda name: serve)
    with pytest.raises(SystemExit):
        entry.main(["grpo", str(spec)])


@pytest.mark.parametrize(("target", "output"), [("CPU", "done\n"), ("Ascend", "done\ncleaned up\n")])
def test_only_on_a_cpu_the_clean_up_is_skipped(target, output):
    program = (
        "import atexit, sys, types; from stages.__main__ import leave; atexit.register(print, 'cleaned up');"
        f"sys.modules['mindspore'] = types.SimpleNamespace(get_context=lambda _: {target!r});"
        "print('done'); leave(3)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (3, output)
