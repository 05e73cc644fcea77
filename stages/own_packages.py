"""Import of grpoflow's own packages, whatever the working directory contains.

Their names (`conf`, `pipeline`, `stages`, `launch`) are common. With `python -m` the working directory is
first on the import path, so a file `stages.py` of the user's would be loaded instead.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = frozenset({"conf", "grpoflow", "launch", "pipeline", "stages"})
START = os.path.join(ROOT, "stages", "start.py")
"""Script that runs a module of one of these packages: `python START MODULE ARGUMENTS`."""


class OwnPackages:
    """Finder (importlib.abc.MetaPathFinder) of the packages in NAMES.

    A user's directory of the same name comes after ours, so that `pipeline/rw.py` is still `pipeline.rw`.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of one of our packages; None for any other module."""
        if name not in NAMES:
            return None
        spec = PathFinder.find_spec(name, [ROOT], target)
        if spec is not None and spec.submodule_search_locations is not None:
            others = [os.path.join(entry or os.getcwd(), name) for entry in sys.path if entry != ROOT]
            spec.submodule_search_locations += [folder for folder in others if os.path.isdir(folder)]
        return spec


def install() -> None:
    """Make this process import grpoflow's packages from where this one is."""
    if OwnPackages not in sys.meta_path:
        sys.meta_path.insert(0, OwnPackages)
