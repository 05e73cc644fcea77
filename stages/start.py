"""Start of a process of grpoflow: `python start.py MODULE ARGUMENTS` is `python -m MODULE ARGUMENTS`.

But no file in the working directory takes the place of grpoflow's packages. A user's code is found as with
-m, where the working directory is first on the import path.
"""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
if sys.path[0] == here:  # before any other import: it contains a package `tokenize`
    sys.path[0] = os.getcwd()
sys.path.insert(0, os.path.dirname(here))
from stages import own_packages  # noqa: E402

del sys.path[0]
own_packages.install()

if __name__ == "__main__":
    import runpy

    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
