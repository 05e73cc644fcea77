"""msrun rests between two looks at its workers: it asks without a pause and takes a core from them.

tests/conftest.py puts this directory on PYTHONPATH; only msrun's own process is changed.
"""

import sys

if any(argument.endswith("/msrun") for argument in sys.orig_argv):
    import subprocess
    import time

    class Paced(subprocess.Popen):
        def poll(self):
            time.sleep(0.05)
            return super().poll()

    subprocess.Popen = Paced
