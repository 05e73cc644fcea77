"""`make upstream` with servers that don't answer, incomplete repositories, and a failing interpreter."""

import socket
import subprocess

import pytest

from tests.upstream import fill

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b")


@pytest.fixture
def upstream(tmp_path, monkeypatch):
    """Let fill.py work in a directory of its own, in which no environment is wanted."""
    target = tmp_path / "upstream"
    monkeypatch.setattr(fill, "UPSTREAM", target)
    monkeypatch.setattr(fill, "interpreter", lambda name: target / f"venv-{name}" / "bin" / "python")
    monkeypatch.setattr(fill, "UNREACHABLE", {})
    monkeypatch.setattr(fill, "ENVIRONMENTS", {})
    return target


@pytest.fixture
def server():
    """A server that accepts connections and says nothing: its addresses, and the connections that it saw."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as listening:
        listening.settimeout(0.5)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", lambda: _waiting(listening)


def _waiting(listening):
    found = 0
    while True:
        try:
            listening.accept()[0].close()
        except TimeoutError:
            return found
        found += 1


def repository(directory, *lacking):
    """Make a repository in which the objects of some files are missing; return its commit."""
    directory.mkdir(parents=True)
    for name in ("train.py", "picture.png"):
        (directory / name).write_text(name)
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=all"]):
        subprocess.run([*GIT, *arguments], cwd=directory, check=True)
    for name in lacking:
        digest = _git(directory, "rev-parse", f"HEAD:{name}")
        (directory / ".git/objects" / digest[:2] / digest[2:]).unlink()
    return _git(directory, "rev-parse", "HEAD")


def _git(directory, *arguments):
    done = subprocess.run([*GIT, *arguments], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_server_that_does_not_answer_is_asked_once_and_its_sources_are_missing(
    upstream, server, monkeypatch, capsys
):
    address, connections = server
    monkeypatch.setattr(fill, "ANSWER_S", 0.5)
    names = {name: ("0" * 40, (f"{address}/{name}.git",)) for name in ("one", "two")}
    monkeypatch.setattr(fill, "SOURCES", names)
    assert fill.main([]) == 0
    assert connections() == 1
    assert "missing: one, two" in capsys.readouterr().out and list(upstream.iterdir()) == []


def test_a_closed_port_is_a_missing_source(upstream, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(fill, "SOURCES", {"one": ("0" * 40, (f"{address}/one.git",))})
    assert fill.main([]) == 0
    assert list(fill.UNREACHABLE) == [address.removeprefix("http://")]


def test_a_mirror_may_lack_pictures_but_no_sources(upstream, tmp_path, monkeypatch):
    mirror = tmp_path / "mirror"
    commits = {
        "good": repository(mirror / "good", "picture.png"),
        "bad": repository(mirror / "bad", "train.py"),
    }
    sources = {name: (commit, (f"http://127.0.0.1:1/{name}.git",)) for name, commit in commits.items()}
    monkeypatch.setattr(fill, "SOURCES", sources)
    assert fill.main([f"--mirror={mirror}"]) == 0
    assert [path.name for path in upstream.iterdir()] == ["good"]
    assert (upstream / "good/train.py").is_file() and not (upstream / "good/picture.png").exists()


def test_a_mirror_that_does_not_exist_is_refused(upstream, tmp_path):
    with pytest.raises(SystemExit) as raised:
        fill.main([f"--mirror={tmp_path / 'mirrors'}"])
    assert raised.value.code == 2


def test_an_environment_that_can_not_be_installed_is_an_error(upstream, monkeypatch):
    monkeypatch.setattr(fill, "SOURCES", {})
    monkeypatch.setattr(fill, "ENVIRONMENTS", {"verl": ()})
    monkeypatch.setattr(fill.sys, "executable", "false")
    assert fill.main([]) == 1


def test_an_environment_is_not_installed_without_the_checkouts_that_use_it(upstream, monkeypatch):
    monkeypatch.setattr(fill, "SOURCES", {})
    monkeypatch.setattr(fill, "ENVIRONMENTS", {"mindspeed": ("mindspeed-ca70c133",)})
    assert fill.main([]) == 0
    assert list(upstream.iterdir()) == []


def test_an_environment_for_a_newer_python_is_not_installed(upstream, monkeypatch, capsys):
    monkeypatch.setattr(fill, "ENVIRONMENTS", {"areal": ()})
    monkeypatch.setattr(fill, "OLDEST_PYTHON", {"areal": (99, 1)})
    monkeypatch.setattr(fill, "SOURCES", {})
    assert fill.main([]) == 0
    assert capsys.readouterr().out == "venv-areal: needs Python 99.1\n"
    assert not (upstream / "venv-areal").exists()
