"""One engine run on several nodes: each node's start script over ssh, all ended when one of them ends badly.

Run as a program (`python fan_out.py plan.json`), so that launch.process can watch and end it like any other
child. The nodes' ends need nothing installed: supervise.sh runs the script there, and ends every process of
the job when its standard input closes, which it does when this program ends in whatever way, or when it
brings no sign of life any more: the network is gone.
The nodes share a file system: the store, and with it configs, weights and checkpoints; each node is asked
whether it does before any is started. Logs may lie on each node's own disk (STORE/.logs a link to it, say):
the workers' are brought home when all nodes have ended.
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
BRING = r"""
cd "$1" 2>/dev/null || exit 0
[ -e "$2" ] && exit 0
for file in worker_*.log; do
  [ -f "$file" ] || continue
  size=$(stat -c %s "$file"); [ "$size" -gt "$3" ] && size=$3
  echo "$file $size" && tail -c "$size" "$file"
done
"""
"""Run on a node as (directory, marker, most bytes): sends each log's end, unless it sees the marker: the
directory is then the one that we see."""
_HEAD = re.compile(rb"(worker_\d{1,6}\.log) (\d{1,12})\n")
_LACKS = re.compile(r"error: node [^:]*: (.*)")
MOST_BYTES = 64 * 2**20
"""Of one log that are brought home: its end."""
BRING_S = 60.0
LOOK_S = 60.0
"""A node that does not answer for so long is told as one that cannot be reached."""
FREE_PORT = 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
GAP_S = 0.1
SIGN_OF_LIFE_S = 5.0
LOST = 255
"""ssh's own exit code when its connection ended."""


def main(arguments: list[str]) -> int:
    """Start all nodes, wait; 0 when all ended with 0, else the exit code of the first that did not."""
    plan = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    hosts, ssh = plan["hosts"], plan["ssh"]
    directory = Path(plan["directory"])
    scripts = [(directory / f"node_{rank}.sh").read_text(encoding="utf-8") for rank in range(len(hosts))]
    lacking = look(ssh, hosts, scripts, directory)
    for host, what in lacking:
        print(f"error: node {host}: {what}", flush=True)
    if lacking:
        return 1
    address = plan["master_addr"] or _address(ssh, hosts[0])
    port = plan["master_port"] or _ask(ssh, hosts[0], [plan["python"] or "python3", "-c", FREE_PORT])
    print(f"nodes {', '.join(hosts)}; they meet at {address}:{port}", flush=True)
    nodes = [_start(plan, rank, {"MASTER_ADDR": address, "MASTER_PORT": port}) for rank in range(len(hosts))]
    result = _wait(nodes, hosts, plan["grace_s"])
    ended = zip(hosts, nodes, strict=True)
    reached = [host for host, node in ended if node.returncode != LOST and node.returncode >= 0]
    bring_home(ssh, reached, Path(plan["logs"]))
    return result


def look(
    ssh: Sequence[str], hosts: Sequence[str], scripts: Sequence[str], shared: Path
) -> list[tuple[str, str]]:
    """What the nodes lack, as (node, what); see launch.nodes.scripts.CHECK.

    Args:
        ssh: the ssh command.
        hosts: the nodes.
        scripts: what each runs, with the argument `check`.
        shared: a directory that all must see; it may be written here.
    """
    marker = shared / f".shared-{secrets.token_hex(8)}"
    marker.touch()
    try:
        with ThreadPoolExecutor(len(hosts)) as pool:
            asked = pool.map(lambda host, script: _look(ssh, host, script, marker), hosts, scripts)
            return [(host, line) for host, lines in zip(hosts, asked, strict=True) for line in lines]
    finally:
        marker.unlink()


def _look(ssh: Sequence[str], host: str, script: str, marker: Path) -> list[str]:
    command = shlex.join(["env", f"SHARED={marker}", "bash", "-s", "check"])
    must_work = f"`{shlex.join([*ssh, host, 'true'])}` must work"
    try:
        done = subprocess.run(
            [*ssh, host, command], input=script, capture_output=True, text=True, timeout=LOOK_S
        )
    except subprocess.TimeoutExpired:
        return [f"does not answer; {must_work}"]
    except OSError as error:
        return [f"launcher.ssh={ssh[0]}: {error.strerror}; {must_work}"]
    lines = done.stderr.strip().splitlines()
    if done.returncode == LOST:
        return [f"{lines[-1] if lines else 'no connection'}; {must_work}"]
    told = [match[1] for line in lines if (match := _LACKS.fullmatch(line))]
    return (told or lines[-1:]) if done.returncode != 0 else []


def _start(plan: dict[str, Any], rank: int, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    directory = Path(plan["directory"])
    remote = ["env", *(f"{name}={value}" for name, value in variables.items())]
    remote += [
        "bash",
        str(directory / "supervise.sh"),
        f"{plan['job']}@{rank}",
        str(directory / f"node_{rank}.sh"),
    ]
    remote.append(str(int(plan["grace_s"])))
    log = (Path(plan["logs"]) / f"node_{rank}.log").open("ab")
    with log:
        return subprocess.Popen(
            [*plan["ssh"], plan["hosts"][rank], shlex.join(remote)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait(nodes: list[subprocess.Popen[bytes]], hosts: list[str], grace_s: float) -> int:
    result, next_sign = 0, 0.0
    while any(node.poll() is None for node in nodes):
        if result == 0 and time.monotonic() >= next_sign:
            next_sign = time.monotonic() + SIGN_OF_LIFE_S
            for node in nodes:
                _sign(node)
        for host, node in zip(hosts, nodes, strict=True):
            if node.poll() and result == 0:
                result = int(node.returncode)
                lost = " (ssh lost it)" if result == LOST else ""
                print(f"error: node {host} ended with exit code {result}{lost}", flush=True)
                for other in nodes:
                    _close(other)
                # a lost node's ssh may never end
                patience = threading.Timer(3 * grace_s + 10, _kill, [nodes])
                patience.daemon = True  # this program ends as soon as the nodes have ended
                patience.start()
        time.sleep(GAP_S)
    if result == 0:
        for host, node in zip(hosts, nodes, strict=True):
            if node.returncode:
                result = int(node.returncode)
                print(f"error: node {host} ended with exit code {result}", flush=True)
    return result


def bring_home(ssh: list[str], hosts: list[str], logs: Path) -> None:
    """Copy the workers' logs of nodes whose `logs` is another directory than ours; existing files stay."""
    marker = logs / f".here-{secrets.token_hex(8)}"
    marker.touch()
    try:
        if hosts:
            with ThreadPoolExecutor(len(hosts)) as pool:
                list(pool.map(lambda host: _fetch(ssh, host, logs, marker.name), hosts))
    finally:
        marker.unlink()


def _fetch(ssh: list[str], host: str, logs: Path, marker: str) -> None:
    command = shlex.join(["bash", "-c", BRING, "bring", str(logs), marker, str(MOST_BYTES)])
    child = subprocess.Popen(
        [*ssh, "-o", "ConnectTimeout=10", host, command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    patience = threading.Timer(BRING_S, child.kill)
    patience.start()
    try:
        with child:
            assert child.stdout is not None
            while line := child.stdout.readline(64):
                head = _HEAD.fullmatch(line)
                if head is None or int(head[2]) > MOST_BYTES:
                    raise ValueError(f"not a log: {line!r}")
                data = child.stdout.read(int(head[2]))
                if len(data) < int(head[2]):
                    raise ValueError(f"{head[1].decode()} is cut off")
                with contextlib.suppress(FileExistsError), (logs / head[1].decode()).open("xb") as file:
                    file.write(data)
    except (OSError, ValueError) as error:
        print(f"node {host}: its logs stay there, in {logs}: {error}", flush=True)
        child.kill()
    finally:
        patience.cancel()


def _sign(node: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):  # it has just ended: poll tells
        if node.stdin is not None:
            node.stdin.write(b".")
            node.stdin.flush()


def _close(node: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        if node.stdin is not None:
            node.stdin.close()


def _kill(nodes: list[subprocess.Popen[bytes]]) -> None:
    for node in nodes:
        node.kill()


def _ask(ssh: list[str], host: str, command: list[str]) -> str:
    done = subprocess.run(
        [*ssh, host, shlex.join(command)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        print(f"error: node {host}: {done.stderr.strip()}", flush=True)
        sys.exit(1)
    return done.stdout.strip()


def _address(ssh: list[str], host: str) -> str:
    """What ssh calls `host` after its own configuration has been read."""
    shown = subprocess.run([*ssh, "-G", host], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    hostname = re.search(r"^hostname (\S+)$", shown.stdout, re.MULTILINE)
    return hostname[1] if hostname else host.rpartition("@")[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
