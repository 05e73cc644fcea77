import json
from pathlib import Path

from pipeline.cli import main
from pipeline.run.build import diagnosis

FAILED = Path(__file__).parents[1] / "data" / "logs" / "failed"


def test_a_known_failure(capsys):
    assert main(["diagnose", str(FAILED / "default_ciphers")]) == 0
    text = capsys.readouterr().out
    assert "urllib3 2 has no DEFAULT_CIPHERS" in text and "pip install 'urllib3<2'" in text
    assert main(["diagnose", str(FAILED / "npu_hccl_timeout"), "--json"]) == 0
    diagnosis_json = json.loads(capsys.readouterr().out)
    assert diagnosis_json["waited_for"] == [2] and diagnosis_json["culprit"].endswith("worker_2.log")
    assert {finding["kind"] for finding in diagnosis_json["findings"]} == {"follows"}


def test_exit_codes_of_unknown_failures_and_missing_logs(tmp_path, capsys):
    (tmp_path / "worker_0.log").write_text("step 1\n")
    assert main(["diagnose", str(tmp_path)]) == 1
    assert main(["diagnose", str(tmp_path / "absent")]) == 2
    assert "holds no *.log" in capsys.readouterr().err


def test_an_error_of_the_stage_is_not_repeated(tmp_path):
    (tmp_path / "stage.log").write_text("error: model.path=x: must be a directory\n")
    assert diagnosis(tmp_path) == []
