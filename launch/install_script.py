"""An installation with versions that fit, as a bash script to read and run. Nothing here runs it."""

from __future__ import annotations

from collections.abc import Mapping

Pins = Mapping[str, str]
"""What stands in a script's braces."""

_REPO = "https://repo.mindspore.cn"
_RELEASES = "https://ms-release.obs.cn-north-4.myhuaweicloud.com"
_MSADAPTER = (
    f"{_REPO}/mindspore/msadapter/version/202507/20250704/"
    "r0.2.0_20250704013008_77b0b4c4409080e60c51b1d00e77f3d05671c07f_newest/any/"
    "msadapter-0.0.1-py3-none-any.whl"
)
_WHEELS = {
    "cann": "8.1 or 8.2",
    "vllm": f"{_REPO}/mirrors/vllm/version/202505/20250514/v0.8.4.dev0_newest/any/"
    "vllm-0.8.4.dev0+g296c657.d20250514.empty-py3-none-any.whl",
    "vllm_mindspore": f"{_REPO}/mindspore/vllm-mindspore/version/202507/20250705/"
    "r0.3.0.rc1_20250705140437_bf353e636e866be3060efba9b6c6b4dcfb086b63_newest/ascend",
    "msadapter": _MSADAPTER,
}
MINDRLHF: Mapping[str, Pins] = {
    "e8a8fc1": {
        **_WHEELS,
        "mindrlhf": "e8a8fc1ca5bf27c47287525c007f2c37adefcea2",
        "mindformers": "051d65f2ec7656d2d801428d84edab8ff58577ed",
    },
    "0cd087455": {
        **_WHEELS,
        "mindrlhf": "0cd0874559d5658e5987ba11718a920384691c59",
        "mindformers": "6a52b430c8f28619a1da22ed828e0f90f8856e0f",
    },
}
"""Source: README.md, docs/install.md and .jenkins/test/config/dependent_packages.yaml of mindrlhf e8a8fc1;
mindformers as users of each pin it."""
_OLD = {"cann": "8.0 to 8.2", "mindspore": f"{_RELEASES}/2.5.0/MindSpore/unified"}
ONE_STAGE: Mapping[str, Pins] = {
    "2d0e84d": {
        **_OLD,
        "mindrlhf": "2d0e84de5bb8254ddc200c2b862278e69c12de8b",
        "mindformers": "17b5b5eb519c7a76f46f608e0e692bade532a152",
    },
    "875f92b": {
        **_OLD,
        "mindrlhf": "875f92b61f3fc9fdf8b82824f86aa7a89535e7f9",
        "mindformers": "e3ee403f3a06e69898b463744caad4b149199eb0",
    },
    "32599d0": {
        **_OLD,
        "mindrlhf": "32599d03b6c4c354854b1c5ca183ff9e6796c01f",
        "mindformers": "ee401441bc8ef198d565e8d75fdf781ca85bcdfd",
    },
}
"""Source: README.md of mindrlhf 2d0e84d (MindSpore r2.5, mindformers dev, no commit of it)."""
MINDSPEED_RL: Mapping[str, Pins] = {
    "05a90d7": {
        "cann": "8.5",
        "host": "https://gitcode.com/Ascend",
        "rl": "05a90d77cb6cfad8999e2aee21068284db959579",
        "llm": "a2c0733b9c8674e240a0a7607ed3f973115cc6b7",
        "mindspeed": "ac9f0e74061f968fdb285aa6a0df68a980fb0412",
        "megatron": "core_v0.12.1",
        "vllm": "b8b302c",
        "vllm_ascend": "1b16c01",
        "told": "0.11.0",
        "msadapter": f"{_RELEASES}/2.7.0/MSAdapter/any/msadapter-0.5.0-py3-none-any.whl",
        "mindspore": "2.7.2",
        "ray": "2.42.1",
        "antlr": "4.9.3",
        "homes": "engine.mindspeed_rl_home=$where/MindSpeed-RL "
        "engine.mindspeed_llm_home=$where/MindSpeed-LLM",
    },
    "667a547": {
        "cann": "8.1 or 8.2",
        "host": "https://gitee.com/ascend",
        "rl": "667a547",
        "llm": "9930a5057acdd1976bce10f49d87b34b8d52c036",
        "mindspeed": "ca70c1338f1b3d1ce46a0ea426e5779ae1312e2e",
        "megatron": "core_r0.8.0",
        "vllm": "5bc1ad6cee754405464a9957e86cf3a9302e4986",
        "vllm_ascend": "908a851",
        "told": "0.9.0",
        "msadapter": _MSADAPTER,
        "mindspore": "2.7.0",
        "ray": "2.42.1",
        "antlr": "4.7.2",
        "homes": "engine.mindspeed_rl_home=$where/MindSpeed-RL",
    },
}
"""Source: install_guide.md, requirements.txt and configs/envs/runtime_env.yaml (VLLM_VERSION) at each commit;
MindSpore as its releases go with the CANN that the guide names: upstream pins neither it nor MSAdapter."""
CONTRACTS: Mapping[str, Mapping[str, Pins]] = {
    "mindrlhf": MINDRLHF,
    "mindrlhf_one_stage": ONE_STAGE,
    "mindspeed_rl": MINDSPEED_RL,
}
"""Engine -> contract -> pins; the first contract is the one that is assumed without a checkout."""

_HEAD = """\
#!/usr/bin/env bash
# An environment for engine={engine} engine.contract={contract}, apart from grpoflow's own.
# Read it, then: bash FILE [DIRECTORY]
# It needs git, Python 3.10 or 3.11 (PYTHON=… names it), and CANN {cann} with its driver, which it does not
# install.
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

_ONE_STAGE = """
# mindrlhf's README names mindformers' dev branch and no commit: the last one before mindrlhf's own
clone https://gitee.com/mindspore/mindformers.git mindformers {mindformers}
(cd mindformers && bash build.sh) # installs what it needs, and itself
clone https://gitee.com/mindspore/mindrlhf.git mindrlhf {mindrlhf}
pip install -r mindrlhf/requirements.txt

# MindSpore r2.5, as its README names it; PyPI's begin with 2.7. Last, since the packages above ask for
# other versions:
abi=cp$(python -c 'import sys; print("%d%d" % sys.version_info[:2])')
machine=$(uname -m)
pins=(
  "{mindspore}/$machine/mindspore-2.5.0-$abi-$abi-linux_$machine.whl"
  'numpy<2'            # with NumPy 2 single MindSpore operators fail with SystemError
  'safetensors<0.8'    # 0.8.0 makes MindSpore write non-contiguous slices wrongly, silently
)
pip install "${{pins[@]}}"

cat <<END
Now:
  grpoflow doctor engine=mindrlhf_one_stage engine.python=$where/env/bin/python \\\\
    engine.mindrlhf_home=$where/mindrlhf engine.mindformers_home=$where/mindformers
END
"""

_MINDSPEED_RL = """
# As the install guide of this commit pins them
clone {host}/MindSpeed-RL.git MindSpeed-RL {rl}
clone {host}/MindSpeed-LLM.git MindSpeed-LLM {llm}
clone {host}/MindSpeed.git MindSpeed {mindspeed}
clone https://github.com/NVIDIA/Megatron-LM.git Megatron-LM {megatron}
clone https://github.com/vllm-project/vllm.git vllm {vllm}
clone https://github.com/vllm-project/vllm-ascend.git vllm-ascend {vllm_ascend}

# vLLM for no particular device. It is no tagged release: grpoflow tells the workers VLLM_VERSION={told}, as
# upstream's runtime_env.yaml does.
VLLM_TARGET_DEVICE=empty pip install ./vllm
# Without its kernels: they are built on torch_npu, which MSAdapter replaces
(cd vllm-ascend && COMPILE_CUSTOM_KERNELS=0 pip install --no-deps -e .)
pip install -r MindSpeed-RL/requirements.txt -r MindSpeed/requirements.txt
pip uninstall -y torch torch-npu torchvision torchaudio # MSAdapter takes their place
pip install '{msadapter}' # torch's names on MindSpore
# Last, since the packages above ask for other versions:
pins=(
  mindspore=={mindspore}    # goes with the CANN that the guide names
  'numpy<2'           # with NumPy 2 single MindSpore operators fail with SystemError
  'safetensors<0.8'   # 0.8.0 writes non-contiguous slices wrongly, silently
  ray=={ray}         # the guide
  datasets==5.0.1     # its requirements name none; this one was seen to read and write the data
  'pyarrow<22'        # datasets brings a newer one, which asks for NumPy 2
  mindstudio-probe    # msprobe
)
pip install "${{pins[@]}}"
pip install --no-deps antlr4-python3-runtime=={antlr} # the guide's, whatever Hydra asks for

cat <<END
Its sources must still be patched for MindSpore: MindSpeed-Core-MS's tools/transfer.py does so. Its rules were
written for MindSpeed-RL 559db0856, vLLM v0.7.3 and vllm-ascend 0713836, but 559db0856 knows no ai_framework;
whether they fit the commits here was never tried. Then put them together as the guide says:
  (cd $where && cp -r MindSpeed/mindspeed Megatron-LM/megatron MindSpeed-LLM/mindspeed_llm MindSpeed-RL/)
and:
  grpoflow doctor engine=mindspeed_rl engine.python=$where/env/bin/python \\\\
    {homes}
END
"""

_BODIES: Mapping[str, str] = {
    "mindrlhf": _MINDRLHF,
    "mindrlhf_one_stage": _ONE_STAGE,
    "mindspeed_rl": _MINDSPEED_RL,
}


def script(engine: str, contract: str = "") -> str:
    """The script for one of CONTRACTS, and one of its contracts (default: the first)."""
    known = CONTRACTS[engine]
    contract = contract if contract in known else next(iter(known))
    return (_HEAD + _BODIES[engine]).format(engine=engine, contract=contract, **known[contract])
