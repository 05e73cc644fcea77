"""Cache of composed configurations, because importing Hydra takes longer than a run with nothing to do.

The key covers everything that composition reads: the overrides, the config files, the environment, and the
versions of the code.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipeline.cache import recall, remember
from pipeline.config.compose import compose, config_files
from pipeline.fingerprint import file_state

KIND = "compose"


def compose_cached(overrides: Sequence[str], config_dir: Path | None = None) -> dict[str, Any]:
    """Compose like `compose`, but return a cached result if there is one.

    Raises:
        ConfigError: same as `compose`; failures are not cached.
    """
    key = _key(overrides, config_dir)
    known = recall(KIND, key)
    if isinstance(known, dict):
        return known
    values = compose(overrides, config_dir)
    remember(KIND, key, values)
    return values


def _key(overrides: Sequence[str], config_dir: Path | None) -> str:
    """Return the digest of all that composition reads."""
    files = [*config_files(config_dir).values(), *_code()]
    content = {
        "overrides": list(overrides),
        "config_dir": str(config_dir.resolve()) if config_dir else None,
        "files": [[str(file), *file_state(file.stat())] for file in files],
        "environment": dict(os.environ),
        "python": sys.version,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _code() -> list[Path]:
    """Return the source files that composition depends on, and one file of each package."""
    plugins = Path(__file__).parents[2] / "hydra_plugins" / "grpoflow"
    packages = [spec.origin for name in ("hydra", "omegaconf") if (spec := find_spec(name)) and spec.origin]
    return [*sorted(Path(__file__).parent.glob("*.py")), *sorted(plugins.glob("*.py")), *map(Path, packages)]
