"""Changes of modules as soon as they are imported; for the sitecustomize files of upstream tests.

Uses only the standard library: it runs in the interpreters of all engines.
"""

import sys
from importlib.machinery import PathFinder


class _Changed:
    """Finds modules, and changes them after their import."""

    def __init__(self, changes):
        self.changes = changes

    def find_spec(self, name, path=None, target=None):
        if name not in self.changes:
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            self.changes[name](module)

        spec.loader.exec_module = execute_and_change
        return spec


def change_after_import(changes):
    """Call a function with each module that is imported from now on; `changes`: module name -> function."""
    sys.meta_path.insert(0, _Changed(changes))
