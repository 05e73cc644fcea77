"""Fills ./upstream: `make upstream`. What is there already, whole, is not made again.

Sources come from, in order: a variable that names a checkout, mirrors on this machine, public addresses.
Each becomes visible under its name at once, by a rename; an environment counts when its last line is written.
Only the standard library: a bare interpreter runs it before anything is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.upstream.sources import ENVIRONMENTS, MIRRORS, SOURCES, UPSTREAM, Environment, Source

NEVER_ASK = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
TIMEOUT_S = 1800.0
STAMP = "grpoflow-requirements"
"""File in an environment: digest of the requirements that it was made from."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when everything that was asked for is there, else 1."""
    parser = argparse.ArgumentParser(prog="make upstream", description=__doc__)
    parser.add_argument("--mirror", action="append", default=[], type=Path, help="as those of $" + MIRRORS)
    parser.add_argument("--only", metavar="WORD", default="", help="only what has WORD in its name")
    options = parser.parse_args(arguments)
    mirrors = [Path(one) for one in os.environ.get(MIRRORS, "").split(os.pathsep) if one] + options.mirror
    UPSTREAM.mkdir(exist_ok=True)
    with (UPSTREAM / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second one waits, and then finds everything there
        told = [fill(source, mirrors) for source in SOURCES if options.only in source.name]
        told += [install(one) for one in ENVIRONMENTS if options.only in f"venv-{one.name}"]
    return 0 if all(told) else 1


def fill(source: Source, mirrors: Iterable[Path]) -> bool:
    """Put one source into ./upstream; says on stdout where it came from, or why it could not be had."""
    target = UPSTREAM / source.name
    if own := os.environ.get(source.variable):
        return _say(source.name, f"{own} (${source.variable})", Path(own).is_dir())
    if target.is_dir():
        return _say(source.name, "is there")
    part = UPSTREAM / f".{source.name}.part"
    reasons = []
    for origin in [*_in_mirrors(source, mirrors), *source.addresses]:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            made = _unpack(Path(origin), part) if origin.endswith(".tar.xz") else _clone(source, origin, part)
        except (OSError, tarfile.TarError, subprocess.SubprocessError) as error:
            reasons.append(f"{origin}: {_reason(error)}")
            continue
        made.rename(target)
        shutil.rmtree(part, ignore_errors=True)
        return _say(source.name, f"from {origin}")
    shutil.rmtree(part, ignore_errors=True)
    remedy = f"set {source.variable} to a checkout, or {MIRRORS} to a directory with {source.name}.tar.xz"
    return _say(source.name, "; ".join([*reasons, f"{remedy} or {source.repository}"]), False)


def _in_mirrors(source: Source, mirrors: Iterable[Path]) -> list[str]:
    """Archives and repositories of mirrors that are there."""
    names = (f"{source.name}.tar.xz", source.repository, source.repository.removesuffix(".git"))
    paths = [mirror.absolute() / name for mirror in mirrors for name in names]
    return [str(path) for path in paths if path.exists()]


def _unpack(archive: Path, part: Path) -> Path:
    """The one directory that an archive holds, named as it is."""
    inside = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.10.12 and 3.11.4
    with tarfile.open(archive) as stream:
        stream.extractall(part, **inside)
    return part / archive.name.removesuffix(".tar.xz")


def _clone(source: Source, origin: str, part: Path) -> Path:
    """One commit without its history; of a server that gives no single commits, everything.

    Raises:
        CalledProcessError: git's.
    """

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-C", str(part), *arguments],
            env={**os.environ, **NEVER_ASK},
            check=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    git("init", "--quiet")
    git("remote", "add", "origin", origin)
    try:
        git("fetch", "--quiet", "--depth=1", "origin", source.commit)
    except subprocess.CalledProcessError:
        git("fetch", "--quiet", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*")
    git("-c", "advice.detachedHead=false", "checkout", "--quiet", source.commit)
    return part


def _reason(error: Exception) -> str:
    said = (getattr(error, "stderr", None) or "").strip()
    return said.splitlines()[-1] if said else str(error)


def install(environment: Environment) -> bool:
    """Make one environment, or bring it to its requirements."""
    name = environment.home.name
    if own := os.environ.get(environment.variable):
        return _say(name, f"{own} (${environment.variable})", os.access(own, os.X_OK))
    alone = [environment.alone] if environment.alone.exists() else []
    read = b"".join(file.read_bytes() for file in (environment.requirements, *alone))
    digest = hashlib.sha256(read).hexdigest()
    stamp = environment.home / STAMP
    if stamp.is_file() and stamp.read_text() == digest:
        return _say(name, "is there")
    shutil.rmtree(environment.home, ignore_errors=True)  # an older one, or one that was interrupted
    pip = [str(environment.python({})), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-compile"]  # of MindSpore little is ever imported
    try:
        subprocess.run([sys.executable, "-m", "venv", str(environment.home)], check=True)
        subprocess.run([*pip, "--requirement", str(environment.requirements)], check=True)
        for file in alone:
            subprocess.run([*pip, "--no-deps", "--requirement", str(file)], check=True)
    except subprocess.CalledProcessError as error:
        return _say(name, f"{error}; or set {environment.variable} to an interpreter", False)
    stamp.write_text(digest)
    return _say(name, "made")


def _say(name: str, what: str, good: bool = True) -> bool:
    print(f"{name}: {what}" if good else f"error: {name}: {what}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
