"""The script is read by bash and shellcheck, never run: it would install for cards that are not here."""

import shutil
import subprocess

import pytest
from packaging.specifiers import SpecifierSet

from launch.install_script import CONTRACTS, script
from stages.engines.mindrlhf import engine as mindrlhf
from stages.engines.mindrlhf.config import VERSIONS as MINDRLHF
from stages.engines.mindrlhf.one_stage.config import WINDOWS as ONE_STAGE
from stages.engines.mindspeed_rl import engine as mindspeed_rl
from stages.engines.mindspeed_rl.config import VERSIONS as MINDSPEED_RL

ALL = [(engine, contract) for engine, known in CONTRACTS.items() for contract in known]
CLONED = {
    ("mindrlhf", "e8a8fc1"): {"mindrlhf": "e8a8fc1", "mindformers": "051d65f"},
    ("mindrlhf", "0cd087455"): {"mindrlhf": "0cd087455", "mindformers": "6a52b43"},
    ("mindrlhf_one_stage", "2d0e84d"): {"mindrlhf": "2d0e84d", "mindformers": "17b5b5e"},
    ("mindrlhf_one_stage", "875f92b"): {"mindrlhf": "875f92b", "mindformers": "e3ee403"},
    ("mindrlhf_one_stage", "32599d0"): {"mindrlhf": "32599d0", "mindformers": "ee40144"},
    ("mindspeed_rl", "05a90d7"): {
        "MindSpeed-RL": "05a90d7", "MindSpeed-LLM": "a2c0733b9", "MindSpeed": "ac9f0e7",
        "Megatron-LM": "core_v0.12.1", "vllm": "b8b302c", "vllm-ascend": "1b16c01",
    },
    ("mindspeed_rl", "667a547"): {
        "MindSpeed-RL": "667a547", "MindSpeed-LLM": "9930a50", "MindSpeed": "ca70c13",
        "Megatron-LM": "core_r0.8.0", "vllm": "5bc1ad6", "vllm-ascend": "908a851",
    },
}  # fmt: skip


@pytest.mark.parametrize(("engine", "contract"), ALL)
def test_bash_can_read_it(engine: str, contract: str) -> None:
    text = script(engine, contract)
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("engine", "contract"), ALL)
def test_shellcheck_has_nothing_to_say(engine: str, contract: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    line = ["shellcheck", "--severity=style", "-"]
    done = subprocess.run(line, input=script(engine, contract), text=True, capture_output=True, timeout=60)
    assert done.stdout == "" and done.returncode == 0


def test_every_contract_of_every_engine_has_a_script() -> None:
    assert {engine: tuple(known) for engine, known in CONTRACTS.items()} == {
        "mindrlhf": MINDRLHF,
        "mindrlhf_one_stage": ONE_STAGE,
        "mindspeed_rl": MINDSPEED_RL,
    }


@pytest.mark.parametrize(("engine", "contract"), ALL)
def test_the_checkouts_are_those_of_the_contract(engine: str, contract: str) -> None:
    lines = [line.split() for line in script(engine, contract).splitlines() if line.startswith("clone http")]
    cloned = {words[2]: words[3] for words in lines}
    wanted = CLONED[engine, contract]
    assert cloned.keys() == wanted.keys()
    assert all(cloned[name].startswith(commit) for name, commit in wanted.items()), cloned


@pytest.mark.parametrize(("engine", "contract"), ALL)
def test_what_is_cloned_is_installed_or_named_as_a_home(engine: str, contract: str) -> None:
    """Nothing is fetched for nothing: each directory is used after it is cloned."""
    text = script(engine, contract)
    for name in CLONED[engine, contract]:
        used = [line for line in text.splitlines() if name in line and not line.startswith(("clone ", "#"))]
        assert used, name


def test_an_unknown_contract_is_the_newest() -> None:
    assert script("mindrlhf", "auto") == script("mindrlhf", "e8a8fc1") == script("mindrlhf")


def test_mindrlhf_gets_what_doctor_asks_for() -> None:
    text = script("mindrlhf")
    for name, wanted, _ in mindrlhf.KNOWN.packages:
        assert f"{name}{wanted}" in text
    for part in ("vllm-0.8.4.dev0", "vllm_mindspore-0.3.0", "msadapter", "'urllib3<2'", "bash build.sh"):
        assert part in text


@pytest.mark.parametrize("contract", MINDSPEED_RL)
def test_mindspeed_rl_gets_what_doctor_asks_for(contract: str) -> None:
    text = script("mindspeed_rl", contract)
    pinned = dict(word.split("==") for word in text.split() if "==" in word)
    known = mindspeed_rl.KNOWN[contract]
    asked = {name: wanted for name, wanted, _ in known.packages if name in pinned}
    assert asked.keys() >= {"mindspore", "ray", "antlr4-python3-runtime"}
    assert [name for name, wanted in asked.items() if pinned[name] not in SpecifierSet(wanted)] == []
    assert "'numpy<2'" in text and "'safetensors<0.8'" in text
    assert "'pyarrow<22'" in text and "datasets" in pinned  # else pip brings a pyarrow that refuses NumPy 1
    assert "VLLM_TARGET_DEVICE=empty pip install ./vllm" in text


@pytest.mark.parametrize(("contract", "told"), [("05a90d7", "0.11.0"), ("667a547", "0.9.0")])
def test_vllm_is_what_the_workers_are_told_that_it_is(contract: str, told: str) -> None:
    """runtime_env.yaml tells vllm-ascend a version, which the script names beside what it builds."""
    from stages.engines.mindspeed_rl.train_yaml import runtime_env
    from tests.stages.engines.mindspeed_rl.jobs import SEVEN, job_of

    variables = runtime_env(job_of(*SEVEN, f"engine.contract={contract}"))["env_vars"]
    assert variables["VLLM_VERSION"] == told
    assert f"VLLM_VERSION={told}," in script("mindspeed_rl", contract)
