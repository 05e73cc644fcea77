"""Checkouts are known by their files; doctor shows what each is."""

import json
from pathlib import Path

import pytest

from pipeline.cli import main

MEGATRON = "mindspeed_rl/config_cls/megatron_config.py"


@pytest.mark.parametrize(
    ("files", "status", "told"),
    [
        ({}, "problem", "cli/train_grpo.py is missing"),
        ({"cli/train_grpo.py": "", MEGATRON: "self.stage = None"}, "problem", "as 559db0856"),
        (
            {"cli/train_grpo.py": "", MEGATRON: "self.ai_framework = None", "cli/convert_ckpt.py": ""},
            "ok",
            "667a547 to before 749829d",
        ),
        ({"cli/train_grpo.py": "", MEGATRON: "self.ai_framework = None"}, "ok", "MindSpeed-LLM"),
    ],
)
def test_checkouts_of_mindspeed_rl(
    files: dict[str, str], status: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    main(["doctor", "--json", "--checkout", f"mindspeed_rl={tmp_path}", f"store={tmp_path}"])
    shown = json.loads(capsys.readouterr().out)
    [check] = [one for one in shown["checks"]["mindspeed_rl"] if one["name"] == "mindspeed_rl"]
    assert check["status"] == status and told in check["found"]


def test_checkouts_of_the_one_stage_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check() -> dict[str, str]:
        main(["doctor", "--json", "--checkout", f"one_stage={tmp_path}", f"store={tmp_path}"])
        checks = json.loads(capsys.readouterr().out)["checks"]["mindrlhf_one_stage"]
        return next(one for one in checks if one["name"] == "one_stage")

    assert check()["status"] == "problem" and "f251809" in check()["remedy"]
    file = tmp_path / "examples" / "qwen_grpo_tutorial" / "grpo_one_stage.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert check()["status"] == "ok"


def test_an_unknown_checkout_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--checkout", "ray=/x"]) == 2
    assert "must be NAME=DIR, of mindrlhf" in capsys.readouterr().err
