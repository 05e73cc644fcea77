"""An installation with versions that fit, as a bash script to read and run. Nothing here runs it."""

from __future__ import annotations

from collections.abc import Mapping

MINDRLHF = {  # contract -> (mindrlhf, mindformers): what users of each pin
    "e8a8fc1": ("e8a8fc1", "051d65f"),
    "0cd087455": ("0cd0874559d5658e5987ba11718a920384691c59", "6a52b43"),
}
"""Source: README.md, docs/install.md and .jenkins/test/config/dependent_packages.yaml of mindrlhf e8a8fc1."""
_REPO = "https://repo.mindspore.cn"
_VLLM = (
    f"{_REPO}/mirrors/vllm/version/202505/20250514/v0.8.4.dev0_newest/any/"
    "vllm-0.8.4.dev0+g296c657.d20250514.empty-py3-none-any.whl"
)
_VLLM_MINDSPORE = (
    f"{_REPO}/mindspore/vllm-mindspore/version/202507/20250705/"
    "r0.3.0.rc1_20250705140437_bf353e636e866be3060efba9b6c6b4dcfb086b63_newest/ascend"
)
_MSADAPTER = (
    f"{_REPO}/mindspore/msadapter/version/202507/20250704/"
    "r0.2.0_20250704013008_77b0b4c4409080e60c51b1d00e77f3d05671c07f_newest/any/"
    "msadapter-0.0.1-py3-none-any.whl"
)

_HEAD = """\
#!/usr/bin/env bash
# An environment for engine={engine}, apart from grpoflow's own. Read it, then: bash FILE [DIRECTORY]
# It needs git, a Python {pythons}, and CANN 8.1 or 8.2 with its driver, which it does not install.
# Written by `grpoflow doctor --fix-script`; never run on a machine with Ascend cards.
set -euo pipefail
where=$(realpath -m "${{1:-$HOME/grpoflow-{engine}}}")
python=${{PYTHON:-python3.11}}
mkdir -p "$where"
cd "$where"

# clone URL DIRECTORY COMMIT : a checkout of exactly this commit; one that is there is kept.
clone() {{
  [ -d "$2/.git" ] || git clone "$1" "$2"
  git -C "$2" checkout --detach "$3"
}}

"$python" -m venv env
# shellcheck disable=SC1091  # it is made by the line above
. env/bin/activate
pip install --upgrade pip
"""

_MINDRLHF = """
# vLLM for no particular device; PyPI's is built for other cards. It brings torch, which MSAdapter replaces.
pip install '{vllm}'
pip uninstall -y torch torch-npu torchvision torchaudio

# vllm-mindspore and MSAdapter (torch's names on MindSpore), as mindrlhf e8a8fc1 pins them
abi=cp$(python -c 'import sys; print("%d%d" % sys.version_info[:2])')
machine=$(uname -m)
pip install "{vllm_mindspore}/$machine/vllm_mindspore-0.3.0-$abi-$abi-linux_$machine.whl"
pip install '{msadapter}'

clone https://gitee.com/mindspore/mindformers.git mindformers {mindformers}
(cd mindformers && bash build.sh) # installs what it needs, and itself
clone https://gitee.com/mindspore/mindrlhf.git mindrlhf {mindrlhf}
pip install -r mindrlhf/requirements.txt

# Last, since the packages above ask for other versions:
pins=(
  mindspore==2.7.0     # the version that mindrlhf's users pin
  'numpy<2'            # with NumPy 2 single MindSpore operators fail with SystemError
  'safetensors<0.8'    # 0.8.0 makes MindSpore write non-contiguous slices wrongly, silently
  'urllib3<2'          # 2.x has no DEFAULT_CIPHERS: the import of vLLM fails
  mindstudio-probe     # msprobe: without it mindformers ends with: save not found
)
pip install "${{pins[@]}}"

cat <<END
Now:
  grpoflow doctor engine=mindrlhf engine.python=$where/env/bin/python \\\\
    engine.mindrlhf_home=$where/mindrlhf engine.mindformers_home=$where/mindformers
END
"""

_MINDSPEED_RL = """
# 559db0856, which MindSpeed-Core-MS pins, knows no ai_framework: it cannot run with MindSpore. The window
# with the MindSpore back end and converters of its own is 667a547 to before 749829d.
clone https://gitee.com/ascend/MindSpeed-RL.git MindSpeed-RL 667a547
# The rest as MindSpeed-Core-MS's auto_convert_rl.sh pins it
clone https://gitee.com/ascend/MindSpeed-LLM.git MindSpeed-LLM 71c5af4d72078d826fd93fec6980004f0de51132
clone https://gitcode.com/Ascend/MindSpeed.git MindSpeed 31aaf3d4ca86234b15f4a5d3af20bd6df06e7d45
clone https://gitee.com/mirrors/Megatron-LM.git Megatron-LM core_r0.8.0
clone https://gitee.com/mirrors/vllm.git vllm v0.7.3
clone https://gitee.com/mirrors/vllm-ascend.git vllm-ascend 0713836e95fe993feefe334945b5b273e4add1f1
pip install '{msadapter}' # torch's names on MindSpore

pip install -r MindSpeed-RL/requirements.txt
pip uninstall -y torch torch-npu torchvision torchaudio # MSAdapter takes their place
pins=(
  mindspore==2.7.0                    # the back end
  'numpy<2'                           # with NumPy 2 single MindSpore operators fail with SystemError
  hydra-core==1.3.2                   # its requirements.txt
  antlr4-python3-runtime==4.9.3       # what Hydra 1.3's grammar was made with
  'safetensors<0.8'                   # 0.8.0 writes non-contiguous slices wrongly, silently
  mindstudio-probe                    # msprobe
)
pip install "${{pins[@]}}"

cat <<END
Its sources must still be patched for MindSpore: run MindSpeed-Core-MS's tools/transfer.py on these
directories as its guide says. Then:
  grpoflow doctor engine=mindspeed_rl engine.python=$where/env/bin/python \\\\
    engine.mindspeed_rl_home=$where/MindSpeed-RL
END
"""

ENGINES: Mapping[str, str] = {"mindrlhf": _MINDRLHF, "mindspeed_rl": _MINDSPEED_RL}


def script(engine: str, contract: str = "") -> str:
    """The script for one of ENGINES; for mindrlhf, of a contract (default: the newest known)."""
    mindrlhf, mindformers = MINDRLHF.get(contract, MINDRLHF["e8a8fc1"])
    return (_HEAD + ENGINES[engine]).format(
        engine=engine,
        pythons="3.10 or 3.11 (PYTHON=… names it)",
        vllm=_VLLM,
        vllm_mindspore=_VLLM_MINDSPORE,
        msadapter=_MSADAPTER,
        mindrlhf=mindrlhf,
        mindformers=mindformers,
    )
