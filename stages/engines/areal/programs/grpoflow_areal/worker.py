"""AReaL's worker with free ports of its own, and on a CPU with grpoflow's inference server.

AReaL seeds `random` with the run's seed and draws ports from it: two runs with one seed would take the same
ports (utils/network.py, find_free_ports).
"""
# mypy: ignore-errors

import os
import random
import sys

from areal.api.cli_args import get_py_cmd, vLLMConfig
from areal.infra.rpc.rpc_server import main
from areal.utils import network

CPU_VARIABLE = "GRPOFLOW_AREAL_CPU"
SERVER = "grpoflow_areal.cpu_server"


def server_command(arguments):
    """Return the command of the server for CPUs; it ignores what only vLLM has."""
    return [sys.executable, *get_py_cmd(SERVER, arguments)[1:]]


if __name__ == "__main__":
    network.random = random.SystemRandom()
    if os.environ.get(CPU_VARIABLE):
        vLLMConfig.build_cmd_from_args = staticmethod(server_command)
    main()
