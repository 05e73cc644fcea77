"""Whether a checkout of an engine is one that can work, by its own files: users copy and patch them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.doctor import Check
from pipeline.errors import ConfigError
from stages.mindrlhf.config import VERSIONS

_ONE_STAGE = Path("examples/qwen_grpo_tutorial/grpo_one_stage.py")
_MEGATRON = Path("mindspeed_rl/config_cls/megatron_config.py")


@dataclass(frozen=True)
class Checkout:
    """One repository that an engine is run from."""

    name: str
    setting: str
    """The field of the engine's configuration that names it."""
    judge: Callable[[Path], tuple[bool, str]]
    """Whether it can work, and what it is."""
    wanted: str
    package: str | None = None
    """The distribution that stands for it where the setting is empty."""

    def check(self, home: str | None, have: str | None = None) -> Check:
        """The checkout at `home`, or the installed version `have` of its distribution."""
        remedy = f"engine.{self.setting}: {self.wanted}"
        if home is None:
            if have is not None:
                return Check(self.name, "ok", have)
            told = "not installed" if self.package else f"engine.{self.setting} is not set"
            return Check(self.name, "problem", told, remedy)
        good, told = self.judge(Path(home))
        return Check(self.name, "ok" if good else "problem", f"{home}: {told}", "" if good else remedy)


def _mindrlhf(home: Path) -> tuple[bool, str]:
    from stages.mindrlhf import contract  # here: it parses upstream's sources

    try:
        return True, f"contract {contract.of(str(home))}"
    except ConfigError as error:
        return False, str(error)


def _one_stage(home: Path) -> tuple[bool, str]:
    if (home / _ONE_STAGE).is_file():
        return True, f"has {_ONE_STAGE}"
    return False, f"no {_ONE_STAGE}: another time of mindrlhf's"


def _mindformers(home: Path) -> tuple[bool, str]:
    good = (home / "mindformers" / "__init__.py").is_file()
    return good, "checkout" if good else "no checkout of mindformers"


def _mindspeed_rl(home: Path) -> tuple[bool, str]:
    if not (home / "cli" / "train_grpo.py").is_file():
        return False, "no checkout of MindSpeed-RL (cli/train_grpo.py is missing)"
    file = home / _MEGATRON
    if not file.is_file() or "ai_framework" not in file.read_text(encoding="utf-8", errors="replace"):
        return False, "knows no ai_framework, as 559db0856, which users' notes pin: MindSpore can't be chosen"
    if (home / "cli" / "convert_ckpt.py").is_file():
        return True, "667a547 to before 749829d, with weight converters of its own"
    return True, "749829d or later: weights are converted by MindSpeed-LLM"


CHECKOUTS: Mapping[str, Checkout] = {
    "mindrlhf": Checkout(
        "mindrlhf",
        "mindrlhf_home",
        _mindrlhf,
        f"a checkout of mindspore-ai/mindrlhf at {' or '.join(VERSIONS)}",
    ),
    "one_stage": Checkout(
        "one_stage",
        "mindrlhf_home",
        _one_stage,
        "a checkout of mindrlhf from 32599d0 (2025-02-21) to before f251809 (2025-03-24)",
    ),
    "mindformers": Checkout(
        "mindformers",
        "mindformers_home",
        _mindformers,
        "a checkout of mindformers at 6a52b43 or 051d65f, as mindrlhf's users pin, or pip install"
        " mindformers==1.6.0",
        "mindformers",
    ),
    "mindspeed_rl": Checkout(
        "mindspeed_rl",
        "mindspeed_rl_home",
        _mindspeed_rl,
        "a checkout of Ascend/MindSpeed-RL from 667a547 to before 749829d (with MindSpore and converters),"
        " or 05a90d7",
    ),
}
