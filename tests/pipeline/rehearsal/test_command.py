"""grpoflow rehearse: the frame around every engine's rehearsal."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from pipeline.cli import main, rehearse
from pipeline.errors import Problem
from pipeline.run import signals
from stages.base.errors import InputError
from stages.engines import local
from stages.engines.rehearsal import Proof
from tests.pipeline.rehearsal import fake

LOCAL = local.ENGINE
READ = Proof("data read", "proven", "4 prompts")
LOST = Proof("loss finite", "failed", "nan | <b>")
OPEN = Proof("vLLM", "unproven", "not here")


@pytest.fixture(autouse=True)
def engine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(local, "ENGINE", replace(LOCAL, rehearsal=fake.__name__, unrehearsed=""))
    monkeypatch.setattr(signals, "install", lambda: None)  # of this process
    for name, value in (("refused", []), ("proofs", [READ, OPEN])):
        monkeypatch.setattr(fake, name, value)


def _rehearse(tmp_path, *arguments):
    return main(["rehearse", f"store={tmp_path / 'store'}", *arguments])


def _report_directory(tmp_path):
    (path,) = (tmp_path / "store" / ".rehearsals").iterdir()
    return path


def test_what_passes_ends_in_a_line_for_programs_and_leaves_two_reports(tmp_path, capsys):
    assert _rehearse(tmp_path) == 0
    out, path = capsys.readouterr().out, _report_directory(tmp_path)
    assert out.splitlines()[-1] == (
        f"rehearsal passed proven=1 failed=0 unproven=1 report={path / 'report.json'}"
    )
    assert json.loads((path / "report.json").read_text())["passed"] is True
    assert not (path / "scratch").exists()


def test_a_failed_proof_fails_the_rehearsal_and_keeps_its_files(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fake, "proofs", [READ, LOST, OPEN])
    assert _rehearse(tmp_path) == 1
    assert (
        capsys.readouterr().out.splitlines()[-1].startswith("rehearsal failed proven=1 failed=1 unproven=1")
    )
    path = _report_directory(tmp_path)
    assert (path / "scratch" / "local" / "left").exists()


def test_an_error_that_the_pipeline_reports_is_a_failed_proof(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fake, "proofs", [READ, InputError("file", None, "is broken", "mend it")])
    assert _rehearse(tmp_path) == 1
    assert "file: is broken; mend it" in capsys.readouterr().out


def test_nothing_but_unproven_is_no_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(fake, "proofs", [OPEN])
    assert _rehearse(tmp_path) == 1


def test_a_refusal_comes_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fake, "refused", [Problem("engine.python", None, "does not answer", "make one")])
    assert _rehearse(tmp_path) == 2
    assert "engine.python: does not answer; make one" in capsys.readouterr().err
    assert not (tmp_path / "store" / ".rehearsals").exists()


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["engine=local"], "runs on a CPU itself"),
        (["experiment=mindrlhf_one_stage_7b"], "dev branch"),
        (["experiment=mindrlhf_7b", "train.schedule=constant"], "builds a CosineDecayLR whatever"),
    ],
)
def test_a_configuration_that_cannot_be_rehearsed_is_refused_with_the_reason(
    tmp_path, capsys, monkeypatch, overrides, why
):
    monkeypatch.setattr(local, "ENGINE", LOCAL)
    assert _rehearse(tmp_path, *overrides) == 2
    assert why in capsys.readouterr().err


def test_a_second_rehearsal_of_the_same_plan_does_not_disturb_the_first(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fake, "proofs", [LOST])
    assert _rehearse(tmp_path) == 1
    with rehearse.lock(_report_directory(tmp_path)):
        assert _rehearse(tmp_path) == 1
        assert "is being rehearsed by another process" in capsys.readouterr().err
        assert (_report_directory(tmp_path) / "scratch" / "local" / "left").exists()
        assert (_report_directory(tmp_path) / rehearse.REPORT).exists()
    monkeypatch.setattr(fake, "proofs", [READ])
    assert _rehearse(tmp_path) == 0


def test_what_is_interrupted_has_not_passed(tmp_path):
    code = (
        "import os, signal, sys; from pipeline.cli import main\n"
        "from stages.engines.rehearsal import Proof; from tests.pipeline.rehearsal import fake\n"
        "from dataclasses import replace\n"
        "from stages.engines import local\n"
        "def stopped(*arguments):\n"
        "    yield Proof('data read', 'proven', '')\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "fake.rehearse = stopped; \n"
        "local.ENGINE = replace(local.ENGINE, rehearsal=fake.__name__, unrehearsed='')\n"
        f"main(['rehearse', 'store={tmp_path / 'store'}'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 143, done.stderr
    assert "Traceback" not in done.stderr
    assert not (_report_directory(tmp_path) / rehearse.REPORT).exists()
