"""A wheel of this tree, installed without extras into an environment of its own."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import finish

ROOT = Path(__file__).parents[2]
PACKAGES = ("conf", "grpoflow", "hydra_plugins", "launch", "pipeline", "stages")
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"


def install(root: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Build and install the wheel below `root`; return a function that runs its command `grpoflow` there."""
    environment, tree = root / "environment", root / "tree"  # setuptools writes into the tree
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--wheel-dir", str(root), str(tree)]
    subprocess.run([*pip, *build], check=True, timeout=300)
    (wheel,) = root.glob("grpoflow-*.whl")
    line = ["install", "--constraint", str(CONSTRAINTS), str(wheel)]
    subprocess.run([*pip, *line], check=True, timeout=900)

    def run(*arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        return finish([str(environment / "bin" / "grpoflow"), *arguments], str(root), code=code)

    return run
