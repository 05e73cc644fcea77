"""What several engines share of mindformers: versions that are known to work, and its checkout."""

import functools
import re
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from stages.base.engine import Checkout, Known, Window
from stages.base.errors import ConfigError, Problem
from stages.base.rules import Broken

NUMPY: Window = ("numpy", "<2", "with numpy 2 single MindSpore operators fail with SystemError")
SAFETENSORS: Window = (
    "safetensors", "<0.8", "0.8.0 makes MindSpore write non-contiguous slices wrongly, silently",
)  # fmt: skip
CANN: Window = ("cann", ">=8.1,<8.3", "mindrlhf's README names 8.1; MindSpore 2.7.0 goes with 8.2.RC1")
DRIVER: Window = ("driver", ">=24.1", "CANN 8.1 and 8.2 came out with drivers 24.1 and later")

VERSIONS = ">=1.6.0,<1.7"
"""6a52b43, 051d65f and v1.6.0, which mindrlhf's users pin, all call themselves 1.6.0."""

KNOWN = Known(
    (("mindspore", "==2.7.0", "mindformers 1.6.0 wants ~=2.7.0rc1"), NUMPY, SAFETENSORS), CANN, DRIVER
)
MAIN = Path("run_mindformer.py")
ARGUMENTS = (
    "config", "run_mode", "use_parallel", "load_checkpoint", "auto_trans_ckpt", "resume_training",
    "train_dataset_dir", "output_dir", "seed",
)  # fmt: skip
"""Arguments that are given to it; mindformers 051d65f and 1.6.0 know them."""
ARGUMENT = re.compile(r"""add_argument\(\s*["']--(\w+)["']""")
"""Of a program of upstream, as its source declares it."""

_VERSION = re.compile(r"""\bversion\s*=\s*["']([\w.+-]+)["']""")


def checkout(
    setting: str, wanted: str, window: str = VERSIONS, package: str | None = "mindformers"
) -> Checkout:
    """A checkout of mindformers, or its distribution.

    Args:
        setting: the key that names it.
        wanted: what it should be.
        window: versions that work.
        package: the distribution that stands for it; None: none does.
    """
    judge = functools.partial(_judge, window)
    return Checkout("mindformers", setting, judge, wanted, package, window if package else "")


def fits(version: str, window: str) -> bool:
    """Whether a version lies in a window; what is no version does not."""
    try:
        return SpecifierSet(window).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _judge(window: str, home: str) -> str:
    """By run_mindformer.py's arguments, and by the version in setup.py where there is one."""
    if fault := home_fault(home):
        raise ConfigError([Problem("mindformers.home", home, *fault[:2])])
    setup = Path(home) / "setup.py"
    text = setup.read_text("utf-8", errors="replace") if setup.is_file() else ""
    declared = _VERSION.search(text)
    if declared is None:
        return "a run_mindformer.py with the arguments of 1.6"
    if not fits(declared[1], window):
        rule = f"setup.py says {declared[1]}: must be {window}"
        raise ConfigError([Problem("mindformers.home", home, rule)])
    return declared[1]


def home_fault(home: str) -> Broken:
    """Whether a directory is a checkout whose run_mindformer.py takes our arguments."""
    try:
        declared = set(ARGUMENT.findall((Path(home) / MAIN).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        rule = f"must be a checkout of mindformers: {MAIN} must be readable ({error})"
        return rule, "clone it and give its directory"
    missing = sorted(set(ARGUMENTS) - declared)
    if not missing:
        return None
    rule = f"its {MAIN} lacks {', '.join(f'--{name}' for name in missing)}"
    return rule, "check out 051d65f or v1.6.0"
