"""Scripts of several nodes started at once; what needs real ssh is in test_nodes.py."""

import json
import subprocess
import sys

from launch.nodes import fan_out
from launch.nodes.scripts import SUPERVISE
from tests.launch.launchers import several


def test_a_failed_node_ends_all_nodes_at_once(tmp_path):
    settings, begun = several(tmp_path, 2), tmp_path / "begun"
    waits = f"until [ -e {begun} ]; do sleep 0.1; done"
    for rank, work in enumerate((f"touch {begun}; exec sleep 300", f"{waits}; exit 3")):
        head = f'[ "${{1:-}}" != check ] || exit 0\nmarked="GRPOFLOW_NODE={tmp_path} {rank}"\n{SUPERVISE}\n'
        run = f'env "$marked" bash -c "{work}" &\nwait $! || end $?\nend 0\n'
        (tmp_path / f"node_{rank}.sh").write_text(head + run)
    plan = {
        "job": str(tmp_path),
        "hosts": settings.hosts,
        "ssh": settings.ssh,
        "master_addr": None,
        "master_port": 1,
        "directory": str(tmp_path),
        "logs": str(tmp_path),
        "grace_s": 600.0,  # nobody waits for a node that has ended
        "lost_s": 30,
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, fan_out.__file__, str(tmp_path / "plan.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "error: node 127.0.0.3 ended with exit code 3\n" in done.stdout
    left = subprocess.run(["pgrep", "-f", f"{tmp_path}/node_"], capture_output=True, text=True)
    assert left.stdout == ""
