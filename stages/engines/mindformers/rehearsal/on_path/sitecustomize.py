"""Install the import hooks of grpoflow_cpu, in processes that rehearse and in no others."""

import os

if os.environ.get("GRPOFLOW_REHEARSAL"):
    from grpoflow_cpu import hooks

    hooks.install()
