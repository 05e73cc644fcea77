"""Each mistake ends with one clear error, a non-zero exit code, and nothing half-written that counts."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e import crash
from tests.e2e.conftest import damage, finish, run


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    mounted = subprocess.run(mount, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.long
@pytest.mark.parametrize("left_kib", [0, 100, 400])
def test_a_disk_that_fills_while_grpo_trains(finished, small_disk, left_kib):
    """The run fails with the cause wherever the disk is full, and resumes once there is space."""
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    store = Path(shutil.copytree(finished[0], small_disk / "store", symlinks=True))
    for stage in ("grpo", "evaluate", "export", "report"):
        shutil.rmtree(store / stage)
    training = crash.start(store, "grpo", sign=".work/grpo-*/metrics.jsonl")
    filler = small_disk / "filler"
    with contextlib.suppress(OSError):  # a neighbour's; training writes meanwhile
        filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - (left_kib << 10)))
    assert training.wait(timeout=240) == 1
    message = (small_disk / "stderr").read_text()
    assert "disk full; free space" in message or "No space left" in message, message
    assert not list(store.glob("grpo/*/manifest.json"))
    filler.unlink()
    run(store)
    assert damage(store) == []


def test_a_full_disk(small_disk):
    failed = run(small_disk / "store", "dataset.train_rows=6000", code=1)
    assert "free space" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert damage(small_disk / "store") == []
    assert not list(small_disk.glob("store/*/.building-*"))


AS_ANOTHER_USER = """
import os, sys
from pipeline.cli import main
import luigi.cmdline, launch.machine.environment, pipeline.run.build, pipeline.tasks
import pipeline.cli.plan, pipeline.cli.run, pipeline.plan.machines
main(["plan", *sys.argv[1:]])  # whatever the interpreter loads lazily, it loads while it may
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(["run", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_store_of_another_user(mode):
    """Root ignores modes, so another user tries."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    with tempfile.TemporaryDirectory() as directory:  # pytest's own directories let nobody in
        Path(directory).chmod(0o755)
        store = Path(directory) / "store"
        store.mkdir()
        store.chmod(mode)
        line = [sys.executable, "-c", AS_ANOTHER_USER, f"store={store}"]
        done = finish(line, directory, env={**os.environ, "XDG_CACHE_HOME": f"{directory}/cache"}, code=2)
        assert "Permission denied; " in done.stderr
        assert "choose another store with store=DIR" in done.stderr
        assert "Traceback" not in done.stderr
        assert not any(path.is_dir() for path in store.iterdir())
