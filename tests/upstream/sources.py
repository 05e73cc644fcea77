"""Where upstream's sources come from: names, commits and addresses, in this one place.

Only the standard library: a bare interpreter runs it before anything is installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UPSTREAM = ROOT / "upstream"
"""What `make upstream` fills; git ignores it."""
MIRRORS = "GRPOFLOW_UPSTREAM_MIRRORS"
"""Environment variable: directories, separated as in PATH, that hold archives or repositories."""

_MINDRLHF = ("https://gitee.com/mindspore/mindrlhf.git", "https://github.com/mindspore-ai/mindrlhf.git")
_MINDFORMERS = (
    "https://gitee.com/mindspore/mindformers.git",
    "https://github.com/mindspore-lab/mindformers.git",
)
_MEGATRON = ("https://github.com/NVIDIA/Megatron-LM.git", "https://gitee.com/mirrors/Megatron-LM.git")


def _ascend(name: str) -> tuple[str, ...]:
    return tuple(f"https://{host}/{name}.git" for host in ("gitcode.com/Ascend", "gitee.com/ascend"))


@dataclass(frozen=True)
class Source:
    """One repository at one commit."""

    name: str
    """Its directory in ./upstream, and its archive's name without .tar.xz."""
    variable: str
    """The environment variable that names a checkout of the reader's own instead."""
    commit: str
    addresses: tuple[str, ...]
    """Public ones, tried in this order."""

    @property
    def repository(self) -> str:
        """The directory that git clone makes, which is also looked for in mirrors."""
        return self.addresses[0].rsplit("/", 1)[1]

    def home(self, environment: Mapping[str, str] = os.environ) -> Path:
        """Where it is, or would be."""
        own = environment.get(self.variable)
        return Path(own).absolute() if own else UPSTREAM / self.name


SOURCES = (
    Source("mindrlhf-e8a8fc1", "GRPOFLOW_MINDRLHF",
           "e8a8fc1ca5bf27c47287525c007f2c37adefcea2", _MINDRLHF),
    Source("mindrlhf-0cd087455", "GRPOFLOW_MINDRLHF_0CD087455",
           "0cd0874559d5658e5987ba11718a920384691c59", _MINDRLHF),
    Source("mindformers-051d65f", "GRPOFLOW_MINDFORMERS",
           "051d65f2ec7656d2d801428d84edab8ff58577ed", _MINDFORMERS),
    # MindSpeed-RL's newer window
    Source("mindspeed-rl-05a90d7", "GRPOFLOW_MINDSPEED_RL",
           "05a90d77cb6cfad8999e2aee21068284db959579", _ascend("MindSpeed-RL")),
    Source("mindspeed-llm-a2c0733b", "GRPOFLOW_MINDSPEED_LLM",
           "a2c0733b9c8674e240a0a7607ed3f973115cc6b7", _ascend("MindSpeed-LLM")),
    Source("mindspeed-ac9f0e74", "GRPOFLOW_MINDSPEED",
           "ac9f0e74061f968fdb285aa6a0df68a980fb0412", _ascend("MindSpeed")),
    Source("megatron-core_v0.12.1", "GRPOFLOW_MEGATRON",
           "a845aa7e12b3a117e24c2352b9e3e60bad2e3a17", _MEGATRON),
    # and the older one
    Source("mindspeed-rl-c21465a", "GRPOFLOW_MINDSPEED_RL_C21465A",
           "c21465aca84fd0fc151707327dcbc81a1dc4a162", _ascend("MindSpeed-RL")),
    Source("mindspeed-llm-9930a505", "GRPOFLOW_MINDSPEED_LLM_9930A505",
           "9930a5057acdd1976bce10f49d87b34b8d52c036", _ascend("MindSpeed-LLM")),
    Source("mindspeed-ca70c133", "GRPOFLOW_MINDSPEED_CA70C133",
           "ca70c1338f1b3d1ce46a0ea426e5779ae1312e2e", _ascend("MindSpeed")),
    Source("megatron-core_v0.8.0", "GRPOFLOW_MEGATRON_0_8_0",
           "baf94af3c667248865f23df73b9fb8e2395e6fd0", _MEGATRON),
)  # fmt: skip


@dataclass(frozen=True)
class Environment:
    """A virtual environment of an engine's own."""

    name: str
    variable: str
    """The environment variable that names an interpreter of the reader's own instead."""
    requirements: Path

    @property
    def alone(self) -> Path:
        """Requirements that are installed without their dependencies; most environments have none."""
        return self.requirements.with_name(f"{self.requirements.stem}-alone.txt")

    @property
    def home(self) -> Path:
        """Its directory in ./upstream."""
        return UPSTREAM / f"venv-{self.name}"

    def python(self, environment: Mapping[str, str] = os.environ) -> Path:
        """Its interpreter, where it is or would be."""
        own = environment.get(self.variable)
        return Path(own).absolute() if own else self.home / "bin" / "python"


ENVIRONMENTS = tuple(
    Environment(name, f"GRPOFLOW_{name.upper()}_PYTHON", Path(__file__).parent / f"{name}.txt")
    for name in ("mindspore", "mindspeed")
)
