"""What kills mindrlhf, or teaches it nothing, is refused or told by the commands before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli import main

RECIPE = ["experiment=mindrlhf_7b", "model.path=/models/qwen", "dataset=arith"]
BROKEN = {
    "rows too short for a compressed mask": ("engine.seq_length=1152", "must be at least 2048"),
    "monitor of what is not there": ("engine.full_monitor=true", "grpo_models.py:377"),
    "one seed for all completions": ("engine.use_vllm=0 layout=dp1_mp4_pp1", "use_vllm=0: never learns"),
    "constant rate": ("train.schedule=constant", "builds a CosineDecayLR whatever the schedule is"),
    "a cosine that does not fall": ("train.final_share=1.0", "train.final_share=1.0"),
    "optimizer on the host": ("layout.train.opt_offload=true", "adam.py:161"),
    "another vocabulary": (
        "engine.tokenizer=qwen model.eos_token_id=[5]", "must be file for a vocabulary other than Qwen2.5's"
    ),
    "the user's own function": ("reward.functions=[mine:pay]", "mindrlhf has no such reward"),
}  # fmt: skip


@pytest.mark.parametrize("command", ["plan", "rehearse"])
@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_train_is_refused(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides, told = BROKEN[name]
    assert main([command, *RECIPE, f"store={tmp_path / 'store'}", *overrides.split()]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_a_reward_behind_the_stop_tokens_letter_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = [one for one in RECIPE if not one.startswith("model.path=")]
    main(["plan", *recipe, f"store={tmp_path / 'store'}", "reward.functions=[format]"])
    assert "reward.functions=format: can't be earned" in " ".join(capsys.readouterr().out.split())
