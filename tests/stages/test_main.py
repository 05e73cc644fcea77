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
def test_a_stage_that_leaves_by_sys_exit_has_failed(spec, code, monkeypatch, capsys):
    """Whoever calls it: a reward, or a library that thinks the program is its own."""

    def leave(context):
        raise SystemExit(code)

    monkeypatch.setattr(entry, "entry", lambda name: leave)
    assert entry.main(["grpo", str(spec)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: ") and f"sys.exit({code!r})" in told and "test_main.py:" in told


def test_the_scheduler_of_msrun_ends_well(spec, monkeypatch):
    monkeypatch.setenv("MS_ROLE", "MS_SCHED")

    def serve(context):
        raise SystemExit(0)

    monkeypatch.setattr(entry, "entry", lambda name: serve)
    with pytest.raises(SystemExit):
        entry.main(["grpo", str(spec)])


@pytest.mark.parametrize(("target", "said"), [("CPU", "done\n"), ("Ascend", "done\ntaken apart\n")])
def test_graphs_of_a_cpu_are_not_taken_apart_at_the_end(target, said):
    program = (
        "import atexit, sys, types; from stages.__main__ import leave; atexit.register(print, 'taken apart');"
        f"sys.modules['mindspore'] = types.SimpleNamespace(get_context=lambda _: {target!r});"
        "print('done'); leave(3)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (3, said)
