"""Composed configurations, remembered, because importing Hydra takes longer than a run with nothing to do.

An entry is found by everything that composing reads: the overrides, the content of every config
file, the environment variables that these name, and the versions of the code. What cannot be known
that way (any resolver but oc.env with a literal name and default) is composed anew each time.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipeline.config.compose import ENVIRONMENT, compose, config_files
from pipeline.config.disk_cache import recall, remember

FORMAT = 1
VERSIONS = {"hydra": "__init__.py", "omegaconf": "version.py"}
"""Package -> its file that says which version it is: reading both takes a tenth of asking for metadata."""
# ${key} and ${a.b} are pure; ${name:...} calls a resolver.
RESOLVER = re.compile(r"\$\{\s*([\w.]+)\s*:")
PURE = frozenset({"oc.select"})  # reads the configuration itself
KIND = "compose"


def compose_cached(overrides: Sequence[str], config_dir: Path | None = None) -> dict[str, Any]:
    """As `compose`, from the cache where an entry fits.

    Raises:
        ConfigError: as `compose`; failures are never remembered.
    """
    key = _key(overrides, config_dir)
    if key is None:
        return compose(overrides, config_dir)
    known = recall(KIND, key)
    if isinstance(known, dict):
        return known
    values = compose(overrides, config_dir)
    remember(KIND, key, values)
    return values


def _key(overrides: Sequence[str], config_dir: Path | None) -> str | None:
    """Digest of all that composing reads; None when that cannot be known."""
    files = _texts(config_dir)
    if files is None:
        return None
    texts = [*overrides, *files.values()]
    calls = [name for text in texts for name in RESOLVER.findall(text)]
    variables = [name for text in texts for name in ENVIRONMENT.findall(text)]
    impure = [name for name in calls if name not in PURE]
    if len(impure) != len(variables) or any(name != "oc.env" for name in impure):
        return None
    content = {
        "format": FORMAT,
        "overrides": list(overrides),
        "config_dir": str(config_dir.resolve()) if config_dir else None,
        "files": files,
        "environment": {name: os.environ.get(name) for name in variables},
        "code": [sys.version, *(file.read_text(encoding="utf-8") for file in _code())],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _texts(config_dir: Path | None) -> dict[str, str] | None:
    try:
        return {name: file.read_text(encoding="utf-8") for name, file in config_files(config_dir).items()}
    except (OSError, UnicodeDecodeError):
        return None


def _code() -> Iterator[Path]:
    """What composes: ours, and which versions of theirs."""
    yield Path(__file__).with_name("compose.py")
    yield from sorted((Path(__file__).parents[2] / "hydra_plugins" / "grpoflow").glob("*.py"))
    for package, file in VERSIONS.items():
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        yield Path(spec.origin).with_name(file)
