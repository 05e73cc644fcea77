"""Checkouts as upstream's guides lay them out: megatron, mindspeed and mindspeed_llm beside its packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from stages.engines.mindspeed_rl.rehearsal.cpu import environment

NAMES = ("mindspeed-rl-c21465a", "mindspeed-llm-9930a505", "mindspeed-ca70c133", "megatron-core_v0.8.0")


@dataclass(frozen=True)
class Upstream:
    """Its program and an interpreter that runs it."""

    home: Path
    """MindSpeed-RL."""
    python: Path

    @property
    def overrides(self):
        """Return the overrides of a checkout with replacements for the NPU."""
        return [
            "engine=mindspeed_rl",
            f"engine.mindspeed_rl_home={self.home}",
            f"engine.python={self.python}",
            *[f'+engine.env.{name}="{value}"' for name, value in environment({}).items()],
        ]


@pytest.fixture(scope="session")
def upstream(checkout, interpreter, tmp_path_factory):
    """Return the checkout, which is laid out once."""
    rl, llm, mindspeed, megatron = map(checkout, NAMES)
    python = interpreter("mindspeed")
    parts = [*rl.iterdir(), llm / "mindspeed_llm", mindspeed / "mindspeed", megatron / "megatron"]
    return Upstream(lay_out(tmp_path_factory.mktemp("upstream") / "MindSpeed-RL", parts), python)


def lay_out(target, parts):
    """A directory of links: nothing is written into a checkout."""
    target.mkdir()
    for part in parts:
        (target / part.name).symlink_to(part)
    return target
