"""Cache of composed configurations, because importing Hydra takes longer than a run with nothing to do.

The key covers everything that composition reads: the overrides, the content of all config files, the
environment variables that these name, and the versions of the code. Configurations with any resolver other
than oc.env with a literal name and default are not cached.
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

from pipeline.cache import recall, remember
from pipeline.config.compose import ENVIRONMENT, compose, config_files
from pipeline.config.resolvers import RESOLVERS

FORMAT = 1
VERSIONS = {"hydra": "__init__.py", "omegaconf": "version.py"}
"""Package -> its file with the version; reading both takes a tenth of the time of importlib.metadata."""
# ${key} and ${a.b} read only the configuration; ${name:...} calls a resolver
RESOLVER = re.compile(r"\$\{\s*([\w.]+)\s*:")
PURE = frozenset({"oc.select", *RESOLVERS})  # these read only the configuration
KIND = "compose"


def compose_cached(overrides: Sequence[str], config_dir: Path | None = None) -> dict[str, Any]:
    """Compose like `compose`, but return a cached result if there is one.

    Raises:
        ConfigError: same as `compose`; failures are not cached.
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
    """Return the digest of all that composition reads; None if the result cannot be cached."""
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
    """Yield the source files that composition depends on, with the version files of its packages."""
    yield from (Path(__file__).with_name(name) for name in ("compose.py", "refused.py", "resolvers.py"))
    yield from sorted((Path(__file__).parents[2] / "hydra_plugins" / "grpoflow").glob("*.py"))
    for package, file in VERSIONS.items():
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        yield Path(spec.origin).with_name(file)
