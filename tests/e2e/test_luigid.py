import sys
from pathlib import Path

from tests.e2e.conftest import command, finish
from tests.pipeline.remote import servers


def test_a_central_scheduler_works(without, tmp_path, monkeypatch):
    """A real luigid on loopback."""
    store, port = without("report", "export"), str(servers.free_port())
    (tmp_path / "luigi.cfg").write_text("[resources]\ncards = 2\n")
    luigid = [str(Path(sys.executable).parent / "luigid"), "--address", "127.0.0.1", "--port", port]
    monkeypatch.chdir(tmp_path)
    with servers.started([*luigid, "--state-path", str(tmp_path / "state")], int(port)):
        scheduler = ["--scheduler-host", "127.0.0.1", "--scheduler-port", port]
        done = finish([*command(store), *scheduler], store.parent)
    assert done.exit_code == 0, done.stderr
    assert sorted(done.started) == ["export", "report"] and done.result["run"]
