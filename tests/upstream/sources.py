"""Sources and environments of upstream's programs: names, commits and addresses.

A link in ./upstream with the name of one of them replaces it by a checkout or environment of your own.
Uses only the standard library: a bare interpreter runs it before anything is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UPSTREAM = ROOT / "upstream"
"""Directory that `make upstream` fills; git ignores it."""
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
    """Name of its directory in ./upstream, and of its archive without .tar.xz."""
    commit: str
    addresses: tuple[str, ...]
    """Public addresses, tried in this order."""

    @property
    def repository(self) -> str:
        """Name of the directory that git clone makes, which is also looked for in mirrors."""
        return self.addresses[0].rsplit("/", 1)[1]

    @property
    def home(self) -> Path:
        """Directory in ./upstream."""
        return UPSTREAM / self.name


SOURCES = (
    Source("mindrlhf-e8a8fc1", "e8a8fc1ca5bf27c47287525c007f2c37adefcea2", _MINDRLHF),
    Source("mindrlhf-0cd087455", "0cd0874559d5658e5987ba11718a920384691c59", _MINDRLHF),
    Source("mindformers-051d65f", "051d65f2ec7656d2d801428d84edab8ff58577ed", _MINDFORMERS),
    # the newer version of MindSpeed-RL
    Source("mindspeed-rl-05a90d7", "05a90d77cb6cfad8999e2aee21068284db959579", _ascend("MindSpeed-RL")),
    Source("mindspeed-llm-a2c0733b", "a2c0733b9c8674e240a0a7607ed3f973115cc6b7", _ascend("MindSpeed-LLM")),
    Source("mindspeed-ac9f0e74", "ac9f0e74061f968fdb285aa6a0df68a980fb0412", _ascend("MindSpeed")),
    Source("megatron-core_v0.12.1", "a845aa7e12b3a117e24c2352b9e3e60bad2e3a17", _MEGATRON),
    # the older version
    Source("mindspeed-rl-c21465a", "c21465aca84fd0fc151707327dcbc81a1dc4a162", _ascend("MindSpeed-RL")),
    Source("mindspeed-llm-9930a505", "9930a5057acdd1976bce10f49d87b34b8d52c036", _ascend("MindSpeed-LLM")),
    Source("mindspeed-ca70c133", "ca70c1338f1b3d1ce46a0ea426e5779ae1312e2e", _ascend("MindSpeed")),
    Source("megatron-core_v0.8.0", "baf94af3c667248865f23df73b9fb8e2395e6fd0", _MEGATRON),
)


@dataclass(frozen=True)
class Environment:
    """Virtual environment of an engine."""

    name: str
    requirements: Path
    compiled: bool = False
    """True: write bytecode, because many processes import much of the environment."""

    @property
    def alone(self) -> Path:
        """Requirements that are installed without their dependencies; most environments have none."""
        return self.requirements.with_name(f"{self.requirements.stem}-alone.txt")

    @property
    def home(self) -> Path:
        """Directory in ./upstream."""
        return UPSTREAM / f"venv-{self.name}"

    @property
    def python(self) -> Path:
        """Interpreter of the environment."""
        return self.home / "bin" / "python"


ENVIRONMENTS = tuple(
    Environment(name, Path(__file__).parent / f"{name}.txt", compiled=name == "verl")
    for name in ("mindspore", "mindspeed", "verl")
)
