"""The known versions of AReaL: PyPI's 1.0.4, and the branch for Ascend, which is run from a checkout.

Both call themselves 1.0.4. The branch ascend-v1.0.5 (2262610b8) has no package of its own; the wheel equals
commit a0f3dca20. Their configuration classes have all keys that grpoflow renders.
Source: areal-project/AReaL at these commits.
"""

import re
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.engines.areal.config import Contract

WHEEL: Contract = "1.0.4"
BRANCH: Contract = "ascend-v1.0.5"
CONFIGURATION, PROJECT = "areal/api/cli_args.py", "pyproject.toml"
ONLY_IN_BRANCH = "areal/utils/awex_runtime.py"
_VERSION = re.compile(r'^version = "([^"]+)"', re.MULTILINE)


def version_of_checkout(home: str | None) -> Contract:
    """Return the contract; raises ConfigError if a checkout has an unknown one."""
    if home is None:
        return WHEEL
    setting, remedy = "engine.areal_home", "check out 2262610b8, the branch ascend-v1.0.5"
    root = Path(home)
    if missing := [name for name in (CONFIGURATION, PROJECT) if not (root / name).is_file()]:
        rule = f"must be a checkout of areal-project/AReaL: it has no {' and no '.join(missing)}"
        raise ConfigError([Problem(setting, home, rule, remedy)])
    declared = _VERSION.search((root / PROJECT).read_text("utf-8", errors="replace"))
    if declared is None or declared[1] != WHEEL:
        found = declared[1] if declared else "no version"
        raise ConfigError([Problem(setting, home, f"declares {found}; known is {WHEEL}", remedy)])
    return BRANCH if (root / ONLY_IN_BRANCH).is_file() else WHEEL
