"""Run on several nodes: start each node's script over ssh, and end all of them when one fails.

This module runs as a program (`python fan_out.py plan.json`), so that launch.process can watch and end it
like any other child. The nodes need no grpoflow. There supervise.sh runs the node's script, and ends every
process of the job when its standard input closes, which happens whenever this program ends, or when no
heartbeat arrives because the network is gone.

The nodes share the store's file system, which is checked before anything starts.
"""

import contextlib
import json
import re
import secrets
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SUPERVISE = r"""#!/usr/bin/env bash
# supervise.sh JOB SCRIPT GRACE_S: runs SCRIPT; ends the job when standard input closes or is silent for 30 s.
job=$1 script=$2 grace=$3
exec 3<&0
members() {  # msrun's workers have sessions of their own, but inherit the variable
  grep -lzxF "GRPOFLOW_JOB=$job" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}
end_now() { while [ -n "$(members)" ]; do kill -KILL $(members) 2>/dev/null; sleep 0.1; done; }
finish() {
  trap '' TERM HUP INT USR1
  kill "$watch" 2>/dev/null
  kill -TERM $(members) 2>/dev/null
  for _ in $(seq $((grace * 10))); do [ -z "$(members)" ] && break; sleep 0.1; done
  end_now
  exit "$1"
}
end_now  # what an earlier attempt left behind
trap 'finish 143' TERM HUP INT USR1
env GRPOFLOW_JOB="$job" bash "$script" </dev/null &
child=$!
( while read -r -n 1 -t 30 _ <&3; do :; done; kill -USR1 $$ ) >/dev/null 2>&1 &
watch=$!
wait "$child"
finish $?
"""
_MISSING = re.compile(r"error: node [^:]*: (.*)")
CHECK_TIMEOUT_S = 60.0
FREE_PORT = 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
POLL_S = 0.1
HEARTBEAT_S = 5.0
LOST = 255
"""Exit code of ssh when its connection ended."""


def main(arguments: list[str]) -> int:
    """Run the nodes; return 0 if all exit with 0, else the exit code of the first that does not."""
    plan = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    hosts, ssh = plan["hosts"], plan["ssh"]
    directory = Path(plan["directory"])
    scripts = [(directory / f"node_{rank}.sh").read_text(encoding="utf-8") for rank in range(len(hosts))]
    problems = check(ssh, hosts, scripts, directory)
    for host, problem in problems:
        print(f"error: node {host}: {problem}", flush=True)
    if problems:
        return 1
    address = plan["master_addr"] or _address(ssh, hosts[0])
    port = plan["master_port"] or _output(ssh, hosts[0], [plan["python"] or "python3", "-c", FREE_PORT])
    print(f"nodes {', '.join(hosts)}; they meet at {address}:{port}", flush=True)
    nodes = [_start(plan, rank, {"MASTER_ADDR": address, "MASTER_PORT": port}) for rank in range(len(hosts))]
    return _wait(nodes, hosts, plan["grace_s"])


def check(
    ssh: Sequence[str], hosts: Sequence[str], scripts: Sequence[str], shared: Path
) -> list[tuple[str, str]]:
    """Return what the nodes are missing as pairs of node and problem (see launch.nodes.scripts.CHECK).

    Args:
        ssh: the ssh command.
        hosts: the nodes.
        scripts: script of each node, run with the argument `check`.
        shared: a directory that all nodes must see and that can be written here.
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
        done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [f"does not answer; {remedy}"]
    except OSError as error:
        return [f"launcher.ssh={ssh[0]}: {error.strerror}; {remedy}"]
    lines = done.stderr.strip().splitlines()
    if done.returncode == LOST:
        return [f"{lines[-1] if lines else 'no connection'}; {remedy}"]
    problems = [match[1] for line in lines if (match := _MISSING.fullmatch(line))]
    return (problems or lines[-1:]) if done.returncode != 0 else []


def _start(plan: dict[str, Any], rank: int, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    directory = Path(plan["directory"])
    remote = ["env", *(f"{name}={value}" for name, value in variables.items())]
    remote += ["bash", str(directory / "supervise.sh"), f"{plan['job']}@{rank}"]
    remote += [str(directory / f"node_{rank}.sh"), str(int(plan["grace_s"]))]
    command = [*plan["ssh"], plan["hosts"][rank], shlex.join(remote)]
    with (Path(plan["logs"]) / f"node_{rank}.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)


def _wait(nodes: list[subprocess.Popen[bytes]], hosts: list[str], grace_s: float) -> int:
    """Wait until all nodes have ended; end all when one fails, and return the exit code of that one."""
    result, next_heartbeat = 0, 0.0
    while True:
        codes = [node.poll() for node in nodes]
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None and result == 0:
            result = int(codes[failed] or 0)
            lost = " (ssh lost it)" if result == LOST else ""
            print(f"error: node {hosts[failed]} ended with exit code {result}{lost}", flush=True)
            for node in nodes:
                _close(node)
            timer = threading.Timer(3 * grace_s + 10, _kill, [nodes])  # a lost node's ssh may never end
            timer.daemon = True
            timer.start()
        if None not in codes:
            return result
        if result == 0 and time.monotonic() >= next_heartbeat:
            next_heartbeat = time.monotonic() + HEARTBEAT_S
            for node in nodes:
                _send_heartbeat(node)
        time.sleep(POLL_S)


def _send_heartbeat(node: subprocess.Popen[bytes]) -> None:
    assert node.stdin is not None
    with contextlib.suppress(OSError):  # the node has just ended
        node.stdin.write(b".")
        node.stdin.flush()


def _close(node: subprocess.Popen[bytes]) -> None:
    assert node.stdin is not None
    with contextlib.suppress(OSError):
        node.stdin.close()


def _kill(nodes: list[subprocess.Popen[bytes]]) -> None:
    for node in nodes:
        node.kill()


def _output(ssh: list[str], host: str, command: list[str]) -> str:
    """Return the output of a command on a node; exit if it fails."""
    done = subprocess.run(
        [*ssh, host, shlex.join(command)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        print(f"error: node {host}: {done.stderr.strip()}", flush=True)
        sys.exit(1)
    return done.stdout.strip()


def _address(ssh: list[str], host: str) -> str:
    """Return the host name that ssh's configuration has for `host`."""
    shown = subprocess.run([*ssh, "-G", host], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    hostname = re.search(r"^hostname (\S+)$", shown.stdout, re.MULTILINE)
    return hostname[1] if hostname else host.rpartition("@")[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
