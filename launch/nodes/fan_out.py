"""Run on several nodes: start each node's script over ssh, and end all of them when one fails.

This module runs as a program (`python fan_out.py plan.json`), so that launch.process can watch and end it
like any other child. The nodes need no grpoflow. A script ends its workers when its standard input closes,
which happens whenever this program ends, or when no heartbeat arrives because the network is gone.

The nodes share the store's file system, which is checked before anything starts.
"""

import contextlib
import json
import math
import random
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_MISSING = re.compile(r"error: node [^:]*: (.*)")
CHECK_TIMEOUT_S = 60.0
PORTS = (20_000, 30_000)
"""Range of ports below those that systems give to clients; a Slurm job's number selects one."""
POLL_S = 0.1
HEARTBEAT_S, LOST_S = 5.0, 30
"""Seconds between heartbeats, and without one until a node ends its workers."""
LOST = 255
"""Exit code of ssh when its connection ended."""


def main(arguments: list[str]) -> int:
    """Run the nodes; return 0 if all exit with 0, else the exit code of the first that does not."""
    plan = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    hosts, ssh, directory = plan["hosts"], plan["ssh"], Path(plan["directory"])
    scripts = [directory / f"node_{rank}.sh" for rank in range(len(hosts))]
    problems = check(ssh, hosts, [script.read_text(encoding="utf-8") for script in scripts], directory)
    for host, problem in problems:
        print(f"error: node {host}: {problem}", flush=True)
    if problems:
        return 1
    address = plan["master_addr"] or _address(ssh, hosts[0])
    port = plan["master_port"] or random.randrange(*PORTS)  # noqa: S311
    print(f"nodes {', '.join(hosts)}; they meet at {address}:{port}", flush=True)
    variables = [f"MASTER_ADDR={address}", f"MASTER_PORT={port}"]
    variables += [f"HEARTBEAT_S={plan['lost_s']}", f"GRACE_S={int(plan['grace_s'])}"]
    nodes = []
    for rank, (host, script) in enumerate(zip(hosts, scripts, strict=True)):
        remote = shlex.join(["env", *variables, f"GRPOFLOW_JOB={plan['job']}@{rank}", "bash", str(script)])
        with (Path(plan["logs"]) / f"node_{rank}.log").open("ab") as log:
            line = [*ssh, host, remote]
            nodes.append(subprocess.Popen(line, bufsize=0, stdin=subprocess.PIPE, stdout=log, stderr=log))
    return _wait(nodes, hosts, plan["grace_s"])


def check(
    ssh: Sequence[str], hosts: Sequence[str], scripts: Sequence[str], shared: Path
) -> list[tuple[str, str]]:
    """Return what the nodes are missing as pairs of node and problem (see launch.nodes.scripts.CHECK).

    Each node runs its script with the argument `check`. All must see the directory `shared`.
    """
    marker = shared / f".shared-{secrets.token_hex(8)}"
    marker.touch()
    try:
        with ThreadPoolExecutor(len(hosts)) as pool:
            results = pool.map(lambda host, script: _check(ssh, host, script, marker), hosts, scripts)
            return [(host, line) for host, lines in zip(hosts, results, strict=True) for line in lines]
    finally:
        marker.unlink()


def _check(ssh: Sequence[str], host: str, script: str, marker: Path) -> list[str]:
    command = [*ssh, host, shlex.join(["env", f"SHARED={marker}", "bash", "-s", "check"])]
    remedy = f"`{shlex.join([*ssh, host, 'true'])}` must work"
    try:
        done = subprocess.run(command, input=script.encode(), capture_output=True, timeout=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [f"does not answer; {remedy}"]
    except OSError as error:
        return [f"launcher.ssh={ssh[0]}: {error.strerror}; {remedy}"]
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode == LOST:
        return [f"{lines[-1] if lines else 'no connection'}; {remedy}"]
    problems = [match[1] for line in lines if (match := _MISSING.fullmatch(line))]
    silent = [f"its check ended with exit code {done.returncode}; {remedy}"]
    return (problems or lines[-1:] or silent) if done.returncode != 0 else []


def _wait(nodes: list[subprocess.Popen[bytes]], hosts: list[str], grace_s: float) -> int:
    """Wait until all nodes have ended; end all when one fails, and return the exit code of that one."""
    inputs = [node.stdin for node in nodes if node.stdin is not None]
    result, next_heartbeat, deadline = 0, 0.0, math.inf
    while None in (codes := [node.poll() for node in nodes]) or (any(codes) and result == 0):
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        now = time.monotonic()
        if failed is not None and result == 0:
            result = int(codes[failed] or 0)
            lost = " (ssh lost it)" if result == LOST else ""
            print(f"error: node {hosts[failed]} ended with exit code {result}{lost}", flush=True)
            deadline = now + 3 * grace_s + 10  # a lost node's ssh may never end
            for stream in inputs:
                stream.close()
        elif result == 0 and now >= next_heartbeat:
            next_heartbeat = now + HEARTBEAT_S
            for stream in inputs:
                with contextlib.suppress(OSError):  # the node has just ended
                    stream.write(b".")
        elif now > deadline:
            for node in nodes:
                node.kill()
        time.sleep(POLL_S)
    return result


def _address(ssh: list[str], host: str) -> str:
    """Return the host name that ssh's configuration has for `host`."""
    shown = subprocess.run([*ssh, "-G", host], stdin=subprocess.DEVNULL, capture_output=True)
    hostname = re.search(r"^hostname (\S+)$", shown.stdout.decode("utf-8", "replace"), re.MULTILINE)
    return hostname[1] if hostname else host.rpartition("@")[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
