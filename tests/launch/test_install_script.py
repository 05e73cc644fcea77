"""The script is read by bash and shellcheck, never run: it would install for cards that are not here."""

import shutil
import subprocess

import pytest

from launch import windows
from launch.install_script import ENGINES, MINDRLHF, script


@pytest.mark.parametrize("engine", ENGINES)
def test_bash_can_read_it(engine: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script(engine), text=True, capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("engine", ENGINES)
def test_shellcheck_has_nothing_to_say(engine: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    line = ["shellcheck", "--severity=style", "-"]
    done = subprocess.run(line, input=script(engine), text=True, capture_output=True, timeout=60)
    assert done.stdout == "" and done.returncode == 0


def test_it_pins_what_doctor_asks_for() -> None:
    text = script("mindrlhf")
    for name, wanted, _ in windows.MINDRLHF:
        assert f"{name}{wanted}" in text
    for part in ("vllm-0.8.4.dev0", "vllm_mindspore-0.3.0", "msadapter", "'urllib3<2'", "bash build.sh"):
        assert part in text
    pins = script("mindspeed_rl")
    assert "hydra-core==1.3.2" in pins and "antlr4-python3-runtime==4.9.3" in pins


@pytest.mark.parametrize("contract", MINDRLHF)
def test_the_checkouts_are_those_of_the_contract(contract: str) -> None:
    assert f"mindrlhf {MINDRLHF[contract][0]}" in script("mindrlhf", contract)
    assert f"mindformers {MINDRLHF[contract][1]}" in script("mindrlhf", contract)
    assert script("mindrlhf", "auto") == script("mindrlhf", "e8a8fc1")


def test_mindspeed_rl_is_not_cloned_at_the_commit_that_cannot_work() -> None:
    cloned = [line.split() for line in script("mindspeed_rl").splitlines() if line.startswith("clone http")]
    commits = {words[2]: words[3] for words in cloned}
    assert commits["MindSpeed-RL"] == "667a547"
