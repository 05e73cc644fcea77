"""Download of the sources and environments of ./upstream: `make upstream`. Complete ones are left alone.

A source comes from mirrors on this machine, or else from public addresses.
A source is complete when it has its final name, an environment when its stamp file is written.
Uses only the standard library: a bare interpreter runs it before anything is installed.
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

NO_PROMPT = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
TIMEOUT_S = 1800.0
STAMP = "grpoflow-requirements"
"""File in an environment with the digest of its requirements."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return exit code 0 if everything requested is there, else 1."""
    parser = argparse.ArgumentParser(prog="make upstream", description=__doc__)
    parser.add_argument("--mirror", action="append", default=[], type=Path, help="same as in $" + MIRRORS)
    parser.add_argument("--only", metavar="WORD", default="", help="only names that contain WORD")
    options = parser.parse_args(arguments)
    mirrors = [Path(path) for path in os.environ.get(MIRRORS, "").split(os.pathsep) if path] + options.mirror
    UPSTREAM.mkdir(exist_ok=True)
    with (UPSTREAM / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits, and then has nothing to do
        results = [fill(source, mirrors) for source in SOURCES if options.only in source.name]
        results += [install(item) for item in ENVIRONMENTS if options.only in f"venv-{item.name}"]
    return 0 if all(results) else 1


def fill(source: Source, mirrors: Iterable[Path]) -> bool:
    """Put one source into ./upstream; print its origin, or why it is not available."""
    target = source.home
    if target.is_dir():
        return _report(source.name, "is there")
    part = UPSTREAM / f".{source.name}.part"
    reasons = []
    for origin in [*_in_mirrors(source, mirrors), *source.addresses]:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            unpacked = (
                _unpack(Path(origin), part) if origin.endswith(".tar.xz") else _clone(source, origin, part)
            )
        except (OSError, tarfile.TarError, subprocess.SubprocessError) as error:
            reasons.append(f"{origin}: {_reason(error)}")
            continue
        unpacked.rename(target)
        shutil.rmtree(part, ignore_errors=True)
        return _report(source.name, f"from {origin}")
    shutil.rmtree(part, ignore_errors=True)
    remedy = f"link a checkout to {target}, or set {MIRRORS} to a directory with {source.name}.tar.xz"
    return _report(source.name, "; ".join([*reasons, f"{remedy} or {source.repository}"]), False)


def _in_mirrors(source: Source, mirrors: Iterable[Path]) -> list[str]:
    """Return the archives and repositories of a source in the mirrors."""
    names = (f"{source.name}.tar.xz", source.repository, source.repository.removesuffix(".git"))
    paths = [mirror.absolute() / name for mirror in mirrors for name in names]
    return [str(path) for path in paths if path.exists()]


def _unpack(archive: Path, part: Path) -> Path:
    """Unpack an archive and return its directory, which has the archive's name."""
    inside = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.10.12 and 3.11.4
    with tarfile.open(archive) as stream:
        stream.extractall(part, **inside)
    return part / archive.name.removesuffix(".tar.xz")


def _clone(source: Source, origin: str, part: Path) -> Path:
    """Clone one commit without history, or everything if the server sends no single commits."""

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-C", str(part), *arguments],
            env={**os.environ, **NO_PROMPT},
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
    output = (getattr(error, "stderr", None) or "").strip()
    return output.splitlines()[-1] if output else str(error)


def install(environment: Environment) -> bool:
    """Create one environment, or update it to its requirements."""
    name = environment.home.name
    if environment.home.is_symlink():
        return _report(name, "is a link", os.access(environment.python, os.X_OK))
    paths = [environment.alone] if environment.alone.exists() else []
    requirements = b"".join(file.read_bytes() for file in (environment.requirements, *paths))
    digest = hashlib.sha256(requirements).hexdigest()
    stamp = environment.home / STAMP
    if stamp.is_file() and stamp.read_text() == digest:
        return _report(name, "is there")
    shutil.rmtree(environment.home, ignore_errors=True)
    pip = [str(environment.python), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check"]
    pip += [] if environment.compiled else ["--no-compile"]  # most of MindSpore is never imported
    try:
        subprocess.run([sys.executable, "-m", "venv", str(environment.home)], check=True)
        subprocess.run([*pip, "--requirement", str(environment.requirements)], check=True)
        for file in paths:
            subprocess.run([*pip, "--no-deps", "--requirement", str(file)], check=True)
    except subprocess.CalledProcessError as error:
        return _report(name, f"{error}; or link an environment to {environment.home}", False)
    stamp.write_text(digest)
    return _report(name, "made")


def _report(name: str, message: str, success: bool = True) -> bool:
    print(f"{name}: {message}" if success else f"error: {name}: {message}", flush=True)
    return success


if __name__ == "__main__":
    sys.exit(main())
