"""Checkouts as upstream's guides lay them out: megatron, mindspeed and mindspeed_llm beside its packages."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

from stages.engines.mindspeed_rl.config import Version
from stages.engines.mindspeed_rl.rehearsal.cpu import environment

NAMES: dict[Version, tuple[str, ...]] = {
    "05a90d7": (
        "mindspeed-rl-05a90d7", "mindspeed-llm-a2c0733b", "mindspeed-ac9f0e74", "megatron-core_v0.12.1"
    ),
    "667a547": (
        "mindspeed-rl-c21465a", "mindspeed-llm-9930a505", "mindspeed-ca70c133", "megatron-core_v0.8.0"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Window:
    """One window's programs and an interpreter that runs them."""

    version: Version
    home: Path
    """MindSpeed-RL."""
    llm: Path
    """MindSpeed-LLM."""
    python: Path

    @property
    def overrides(self):
        """Return the overrides of a checkout with replacements for the NPU."""
        return [
            "engine=mindspeed_rl",
            f"engine.mindspeed_rl_home={self.home}",
            f"engine.mindspeed_llm_home={self.llm}",
            f"engine.python={self.python}",
            *[f'+engine.env.{name}="{value}"' for name, value in environment({}).items()],
        ]


@pytest.fixture(scope="session", params=list(NAMES))
def window(request, make_window):
    return make_window(request.param)


@pytest.fixture(scope="session")
def newest(make_window):
    return make_window("05a90d7")


@pytest.fixture(scope="session")
def older(make_window):
    return make_window("667a547")


@pytest.fixture(scope="session")
def make_window(checkout, interpreter, tmp_path_factory):
    """Return a function: version -> its window, which is laid out once."""

    @functools.cache
    def make(version):
        python = interpreter("mindspeed")
        rl, llm, mindspeed, megatron = map(checkout, NAMES[version])
        root = tmp_path_factory.mktemp(f"window_{version}")
        sibling = [mindspeed / "mindspeed", megatron / "megatron"]
        home = lay_out(root / "MindSpeed-RL", [*rl.iterdir(), llm / "mindspeed_llm", *sibling])
        return Window(version, home, lay_out(root / "MindSpeed-LLM", [*llm.iterdir(), *sibling]), python)

    return make


def lay_out(target, parts):
    """A directory of links: nothing is written into a checkout."""
    target.mkdir()
    for part in parts:
        (target / part.name).symlink_to(part)
    return target
