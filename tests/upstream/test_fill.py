"""`make upstream` without network and upstream."""

from __future__ import annotations

import subprocess
import tarfile

import pytest

from tests.upstream import fill, sources
from tests.upstream.sources import SOURCES, Environment, Source

NOWHERE = "file:///nowhere/thing.git"


@pytest.fixture
def upstream(tmp_path, monkeypatch):
    directory = tmp_path / "upstream"
    directory.mkdir()
    for module in (fill, sources):
        monkeypatch.setattr(module, "UPSTREAM", directory)
    return directory


def source(commit="0" * 40, *addresses):
    return Source("thing-1", commit, addresses or (NOWHERE,))


def write_archive(mirror):
    (mirror / "thing-1").mkdir(parents=True)
    (mirror / "thing-1" / "file").write_text("archived")
    with tarfile.open(mirror / "thing-1.tar.xz", "w:xz") as stream:
        stream.add(mirror / "thing-1", "thing-1")
    return mirror / "thing-1.tar.xz"


def test_a_commit_comes_from_the_first_address_that_has_it(upstream, tmp_path):
    home = tmp_path / "thing.git"

    def git(*arguments):
        command = ["git", "-C", str(home), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    home.mkdir()
    git("init", "--quiet")
    for text in ("old", "new"):
        (home / "file").write_text(text)
        git("add", "file")
        git("commit", "--quiet", "--message", text)
    assert fill.fill(source(git("rev-parse", "HEAD~1"), NOWHERE, f"file://{home}"), [])
    assert (upstream / "thing-1" / "file").read_text() == "old"
    assert [path.name for path in upstream.iterdir()] == ["thing-1"]


def test_an_archive_of_a_mirror_is_unpacked_once(upstream, tmp_path):
    write_archive(tmp_path / "mirror")
    (upstream / ".thing-1.part" / "thing-1").mkdir(parents=True)  # of an interrupted attempt
    assert fill.fill(source(), [tmp_path / "no mirror", tmp_path / "mirror"])
    (upstream / "thing-1" / "file").write_text("mine")
    assert fill.fill(source(), [tmp_path / "mirror"])
    assert (upstream / "thing-1" / "file").read_text() == "mine"


def test_a_broken_archive_leaves_nothing(upstream, tmp_path):
    path = write_archive(tmp_path)
    path.write_bytes(path.read_bytes()[:60])
    assert not fill.fill(source(), [tmp_path])
    assert list(upstream.iterdir()) == []


def test_an_environment_is_rebuilt_until_it_is_complete_and_when_requirements_change(
    upstream, tmp_path, monkeypatch
):
    environment = Environment("thing", tmp_path / "requirements.txt")
    environment.requirements.write_text("thing==1\n")
    commands: list[list[str]] = []

    def run(command, check):
        commands.append(command)
        environment.home.mkdir(exist_ok=True)
        if len(commands) == 2:  # pip of the first attempt
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", run)
    assert not fill.install(environment)
    for expected in (4, 4):
        assert fill.install(environment) and len(commands) == expected
    environment.alone.write_text("proud==1\n")
    assert fill.install(environment) and len(commands) == 7
    assert "--no-deps" in commands[-1] and commands[-1][-1] == str(environment.alone)


def test_names_are_unique_and_commits_complete():
    names = [source.name for source in SOURCES]
    assert len(set(names)) == len(names)
    for pinned in SOURCES:
        abbreviated = pinned.name.rpartition("-")[2]
        assert len(pinned.commit) == 40
        assert pinned.commit.startswith(abbreviated) or abbreviated.startswith("core_v")
