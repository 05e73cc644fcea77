"""How ./upstream is filled; no network, no upstream."""

from __future__ import annotations

import subprocess
import tarfile
from dataclasses import replace

import pytest

from tests.upstream import fill, sources
from tests.upstream.sources import ENVIRONMENTS, SOURCES, Environment, Source

NOWHERE = "file:///nowhere/thing.git"


@pytest.fixture
def upstream(tmp_path, monkeypatch):
    directory = tmp_path / "upstream"
    directory.mkdir()
    for module in (fill, sources):
        monkeypatch.setattr(module, "UPSTREAM", directory)
    return directory


@pytest.fixture
def repository(tmp_path):
    """A repository and the commit before its last."""
    home = tmp_path / "thing.git"

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(home), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    home.mkdir()
    git("init", "--quiet")
    for text in ("old", "new"):
        (home / "file").write_text(text)
        git("add", "file")
        git("commit", "--quiet", "--message", text)
    return home, git("rev-parse", "HEAD~1")


def source(commit="0" * 40, *addresses):
    return Source("thing-1", "GRPOFLOW_THING", commit, addresses or (NOWHERE,))


def archive(mirror):
    inside = mirror / "thing-1"
    inside.mkdir(parents=True)
    (inside / "file").write_text("archived")
    path = mirror / "thing-1.tar.xz"
    with tarfile.open(path, "w:xz") as stream:
        stream.add(inside, "thing-1")
    return path


def test_a_commit_comes_from_the_first_address_that_has_it(upstream, repository):
    home, commit = repository
    assert fill.fill(source(commit, NOWHERE, f"file://{home}"), [])
    assert (upstream / "thing-1" / "file").read_text() == "old"
    assert [path.name for path in upstream.iterdir()] == ["thing-1"]


def test_a_repository_in_a_mirror_goes_before_addresses(upstream, repository, capsys):
    home, commit = repository
    assert fill.fill(source(commit, "https://127.0.0.1:9/thing.git"), [home.parent])
    assert capsys.readouterr().out == f"thing-1: from {home}\n"


def test_an_archive_goes_before_addresses_and_is_unpacked_once(upstream, tmp_path):
    archive(tmp_path / "mirror")
    assert fill.fill(source(), [tmp_path / "no mirror", tmp_path / "mirror"])
    (upstream / "thing-1" / "file").write_text("mine")
    assert fill.fill(source(), [tmp_path / "mirror"])
    assert (upstream / "thing-1" / "file").read_text() == "mine"


def test_what_an_interrupted_one_left_is_made_anew(upstream, tmp_path):
    left = upstream / ".thing-1.part" / "thing-1"
    left.mkdir(parents=True)
    (left / "half").touch()
    archive(tmp_path)
    assert fill.fill(source(), [tmp_path])
    assert [path.name for path in (upstream / "thing-1").iterdir()] == ["file"]


def test_a_broken_archive_leaves_nothing_and_says_what_would_help(upstream, tmp_path, capsys):
    path = archive(tmp_path)
    path.write_bytes(path.read_bytes()[:60])
    assert not fill.fill(source(), [tmp_path])
    assert list(upstream.iterdir()) == []
    said = capsys.readouterr().out
    assert str(path) in said and NOWHERE in said and "GRPOFLOW_THING" in said


def test_a_variable_names_a_checkout_instead(upstream, tmp_path, monkeypatch):
    monkeypatch.setenv("GRPOFLOW_THING", str(tmp_path))
    assert fill.fill(source(), []) and list(upstream.iterdir()) == []
    assert source().home() == tmp_path
    monkeypatch.setenv("GRPOFLOW_THING", str(tmp_path / "missing"))
    assert not fill.fill(source(), [])


def test_an_environment_counts_only_when_it_is_complete(upstream, tmp_path, monkeypatch):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("thing==1\n")
    environment = Environment("thing", "GRPOFLOW_THING_PYTHON", requirements)
    commands: list[list[str]] = []
    broken = [True]

    def run(command, check):
        commands.append(command)
        environment.home.mkdir(exist_ok=True)
        if broken and "pip" in command:
            raise subprocess.CalledProcessError(broken.pop(), command)

    monkeypatch.setattr(subprocess, "run", run)
    assert not fill.install(environment)
    assert fill.install(environment) and len(commands) == 4
    assert fill.install(environment) and len(commands) == 4
    requirements.write_text("thing==2\n")
    assert fill.install(environment) and len(commands) == 6
    environment.alone.write_text("proud==1\n")
    assert fill.install(environment) and len(commands) == 9
    assert "--no-deps" in commands[-1] and commands[-1][-1] == str(environment.alone)


def test_names_and_variables_are_unique_and_commits_whole():
    assert len({one.name for one in SOURCES}) == len(SOURCES)
    variables = [one.variable for one in (*SOURCES, *ENVIRONMENTS)]
    assert len(set(variables)) == len(variables)
    for one in SOURCES:
        assert len(one.commit) == 40 and int(one.commit, 16)
        pinned = one.name.rpartition("-")[2]
        assert one.commit.startswith(pinned) or pinned.startswith("core_v")
        assert all(address.startswith("https://") for address in one.addresses)
    assert replace(SOURCES[0], addresses=("https://a/b.git",)).repository == "b.git"
