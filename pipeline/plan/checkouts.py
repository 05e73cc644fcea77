"""Whether a checkout of an engine is one that can work: asked of the stages that will run it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from launch.machine.checks import Check
from launch.windows import MINDFORMERS_VERSIONS, ONE_STAGE_MINDFORMERS
from pipeline.errors import ConfigError
from stages.engines.mindrlhf.config import VERSIONS
from stages.errors import Problem

_VERSION = re.compile(r"""\bversion\s*=\s*["']([\w.+-]+)["']""")


@dataclass(frozen=True)
class Checkout:
    """One repository that an engine is run from."""

    name: str
    setting: str
    """The key of the configuration that names it."""
    judge: Callable[[str], str]
    """The contract that it keeps; raises ConfigError where it keeps none that is known."""
    wanted: str
    package: str | None = None
    """The distribution that stands for it where the setting is empty."""
    window: str = ""
    """Versions of that distribution that work."""
    recognise: Callable[[str], str] | None = None
    """The contract alone, where `judge` refuses checkouts that keep one; None: `judge`."""
    needed_by: tuple[str, ...] = ()
    """Contracts of the engine's first checkout that need this one; empty: all."""

    @property
    def key(self) -> str:
        """The setting's name within its section."""
        return self.setting.rpartition(".")[2]

    def check(self, home: str | None, have: str | None = None) -> Check:
        """The checkout at `home`, or the installed version `have` of its distribution."""
        remedy = f"{self.setting}: {self.wanted}"
        if home is None:
            if have is None:
                told = "not installed" if self.package else f"{self.setting} is not set"
                return Check(self.name, "problem", told, remedy)
            if _fits(have, self.window):
                return Check(self.name, "ok", have)
            return Check(self.name, "problem", have, f"must be {self.package}{self.window}; {remedy}")
        try:
            return Check(self.name, "ok", f"{home}: {self.judge(home)}")
        except ConfigError as error:
            told = "; ".join(problem.rule for problem in error.problems)
            own = next((problem.remedy for problem in error.problems if problem.remedy), None)
            return Check(self.name, "problem", f"{home}: {told}", f"{self.setting}: {own}" if own else remedy)

    def contract(self, home: str | None) -> str | None:
        """The contract that `home` keeps; None: none that is known."""
        try:
            return (self.recognise or self.judge)(home) if home is not None else None
        except ConfigError:
            return None


def _fits(version: str, window: str) -> bool:
    try:
        return SpecifierSet(window).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _mindrlhf(home: str) -> str:
    from stages.engines.mindrlhf import contract  # here and below: they parse upstream's sources

    return contract.of(home)


def _one_stage(home: str) -> str:
    from stages.engines.mindrlhf.one_stage import contract

    return contract.of(home)


def _mindspeed_rl(home: str) -> str:
    from stages.engines.mindspeed_rl import contract

    return contract.judge(home)


def _mindspeed_rl_contract(home: str) -> str:
    from stages.engines.mindspeed_rl import contract

    return contract.of(home)


def _mindspeed_llm(home: str) -> str:
    from stages.engines.mindspeed_rl import contract

    return contract.judge_converter(home)


def _mindformers(window: str) -> Callable[[str], str]:
    """By run_mindformer.py's arguments, and by the version in setup.py where there is one."""

    def judge(home: str) -> str:
        from stages.engines.mindformers.job import check_home

        if found := check_home(home):
            raise ConfigError(found)
        setup = Path(home) / "setup.py"
        text = setup.read_text("utf-8", errors="replace") if setup.is_file() else ""
        declared = _VERSION.search(text)
        if declared is None:
            return "a run_mindformer.py with the arguments of 1.6"
        if not _fits(declared[1], window):
            rule = f"setup.py says {declared[1]}: must be {window}"
            raise ConfigError([Problem("mindformers.home", home, rule)])
        return declared[1]

    return judge


CHECKOUTS: Mapping[str, Checkout] = {
    "mindrlhf": Checkout(
        "mindrlhf",
        "engine.mindrlhf_home",
        _mindrlhf,
        f"a checkout of mindspore-ai/mindrlhf at {' or '.join(VERSIONS)}",
    ),
    "one_stage": Checkout(
        "one_stage",
        "engine.mindrlhf_home",
        _one_stage,
        "a checkout of mindrlhf from 32599d0 (2025-02-21) to before f251809 (2025-03-24)",
    ),
    "mindformers": Checkout(
        "mindformers",
        "engine.mindformers_home",
        _mindformers(MINDFORMERS_VERSIONS),
        "a checkout of mindformers at 6a52b43 or 051d65f, as mindrlhf's users pin, or pip install"
        " mindformers==1.6.0",
        "mindformers",
        MINDFORMERS_VERSIONS,
    ),
    "mindspeed_rl": Checkout(
        "mindspeed_rl",
        "engine.mindspeed_rl_home",
        _mindspeed_rl,
        "a checkout of Ascend/MindSpeed-RL from 667a547 to before 749829d (with MindSpore and converters),"
        " or 05a90d7",
        recognise=_mindspeed_rl_contract,
    ),
    "mindspeed_llm": Checkout(
        "mindspeed_llm",
        "engine.mindspeed_llm_home",
        _mindspeed_llm,
        "a checkout of Ascend/MindSpeed-LLM at a2c0733b9, whose converter contract 05a90d7 needs",
        needed_by=("05a90d7",),
    ),
}
ONE_STAGE_MINDFORMERS_CHECKOUT = Checkout(
    "mindformers",
    "engine.mindformers_home",
    _mindformers(ONE_STAGE_MINDFORMERS),
    "a checkout of mindformers' dev branch of February or March 2025, which mindrlhf's README names",
    "mindformers",
    ONE_STAGE_MINDFORMERS,
)
"""grpo_one_stage.py is older than mindformers 1.6."""
SUPERVISED = Checkout(
    "mindformers",
    "mindformers.home",
    _mindformers(MINDFORMERS_VERSIONS),
    "a checkout of mindformers at 051d65f or v1.6.0",
)
"""For engine.sft=mindformers, which starts run_mindformer.py: no distribution holds that."""
