import json
import sys
from pathlib import Path

import pytest

from launch.doctor import Check
from pipeline.cli import main
from pipeline.doctor import verdict


def test_the_default_engine_is_ready_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", f"store={tmp_path / 'store'}"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdicts"]["local"] == "ready"
    assert [check["name"] for check in told["checks"]["machine"]] == ["disk", "port"]  # no network unasked
    assert not (tmp_path / "store").exists()


def test_what_mindrlhf_lacks_is_named_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no npu-smi
    engine = ["engine=mindrlhf", "model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"engine.python={sys.executable}"]
    assert main(["doctor", "--json", *engine, f"store={tmp_path}"]) == 1
    told = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in told["checks"]["mindrlhf"]}
    assert told["verdicts"]["mindrlhf"] == "not ready"
    assert checks["devices"]["remedy"].startswith("8 Ascend cards")
    assert "engine.mindrlhf_home" in checks["mindrlhf"]["remedy"]
    assert checks["python"]["status"] == checks["mindspore"]["status"] == "ok"
    assert main(["doctor", *engine, "engine.use_vllm=0", f"store={tmp_path}"]) == 1
    text = capsys.readouterr().out
    assert "engine=mindrlhf: not ready" in text and "vllm" not in text


def test_what_runs_in_a_container_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "engine=mindrlhf", "engine.container=[docker,exec,npu]", f"store={tmp_path}"])
    assert "unknown python: runs behind docker" in capsys.readouterr().out


def test_verdicts() -> None:
    good, bad, dark = (Check("x", status, "") for status in ("ok", "problem", "unknown"))
    assert [verdict(one) for one in ([good], [good, dark], [dark, bad])] == [
        "ready",
        "ready as far as known",
        "not ready",
    ]


def test_every_engine_has_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json", f"store={tmp_path}"])
    told = json.loads(capsys.readouterr().out)
    assert set(told["verdicts"]) == {"local", "mindrlhf", "mindrlhf_one_stage", "mindspeed_rl", "mindformers"}
    main(["doctor", f"store={tmp_path}"])
    text = capsys.readouterr().out
    assert "engine=mindspeed_rl: not ready: devices, mindspeed_rl" in text  # by name; --json tells more


def test_hosts_are_asked_when_the_launcher_is_ssh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    over = ["launcher=ssh", "launcher.hosts=[no-such-host.invalid]", f"store={tmp_path}"]
    assert main(["doctor", "--json", *over]) == 1
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]["machine"]]
    assert names == ["disk", "port", "host no-such-host.invalid"]


def test_the_script_is_of_the_chosen_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--fix-script", "engine=mindrlhf", "engine.contract=0cd087455"]) == 0
    assert "clone https://gitee.com/mindspore/mindrlhf.git mindrlhf 0cd0874559d" in capsys.readouterr().out
