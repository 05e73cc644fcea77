"""Directory of upstream's sources and environments, which `make upstream` fills; git ignores it.

A link in it with the name of a source or environment replaces it by a checkout or environment of your own.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
UPSTREAM = ROOT / "upstream"


def interpreter(name: str) -> Path:
    """Return the interpreter of an environment; NAME.txt and NAME-alone.txt have its requirements."""
    return UPSTREAM / f"venv-{name}" / "bin" / "python"
