"""Download of the sources and environments of ./upstream: `make upstream`. Complete ones are left alone.

A source comes from mirrors on this machine, or else from public addresses.
A source is complete when it has its final name, an environment when its stamp file is written.
Uses only the standard library: a bare interpreter runs it before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.upstream.sources import UPSTREAM, interpreter

NO_PROMPT = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
TIMEOUT_S = 1800.0
STAMP = "grpoflow-requirements"
"""File in an environment with the digest of its requirements."""
ENVIRONMENTS = {"mindspore": False, "mindspeed": False, "verl": True}
"""Name -> True if bytecode is written, because many processes import much of the environment."""


def _hosts(name: str, *hosts: str) -> tuple[str, ...]:
    return tuple(f"https://{host}/{name}.git" for host in hosts)


ASCEND = ("gitcode.com/Ascend", "gitee.com/ascend")
MINDRLHF = _hosts("mindrlhf", "gitee.com/mindspore", "github.com/mindspore-ai")
MINDFORMERS = _hosts("mindformers", "gitee.com/mindspore", "github.com/mindspore-lab")
MEGATRON = _hosts("Megatron-LM", "github.com/NVIDIA", "gitee.com/mirrors")
RL, LLM, MINDSPEED = (_hosts(name, *ASCEND) for name in ("MindSpeed-RL", "MindSpeed-LLM", "MindSpeed"))
SOURCES = {
    "mindrlhf-e8a8fc1": ("e8a8fc1ca5bf27c47287525c007f2c37adefcea2", MINDRLHF),
    "mindrlhf-0cd087455": ("0cd0874559d5658e5987ba11718a920384691c59", MINDRLHF),
    "mindformers-051d65f": ("051d65f2ec7656d2d801428d84edab8ff58577ed", MINDFORMERS),
    # the newer version of MindSpeed-RL
    "mindspeed-rl-05a90d7": ("05a90d77cb6cfad8999e2aee21068284db959579", RL),
    "mindspeed-llm-a2c0733b": ("a2c0733b9c8674e240a0a7607ed3f973115cc6b7", LLM),
    "mindspeed-ac9f0e74": ("ac9f0e74061f968fdb285aa6a0df68a980fb0412", MINDSPEED),
    "megatron-core_v0.12.1": ("a845aa7e12b3a117e24c2352b9e3e60bad2e3a17", MEGATRON),
    # the older version
    "mindspeed-rl-c21465a": ("c21465aca84fd0fc151707327dcbc81a1dc4a162", RL),
    "mindspeed-llm-9930a505": ("9930a5057acdd1976bce10f49d87b34b8d52c036", LLM),
    "mindspeed-ca70c133": ("ca70c1338f1b3d1ce46a0ea426e5779ae1312e2e", MINDSPEED),
    "megatron-core_v0.8.0": ("baf94af3c667248865f23df73b9fb8e2395e6fd0", MEGATRON),
}
"""Name of a directory in ./upstream and of an archive -> commit, public addresses in order."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return exit code 0 if everything requested is there, else 1."""
    parser = argparse.ArgumentParser(prog="make upstream", description=__doc__)
    parser.add_argument(
        "--mirror", action="append", default=[], type=Path, help="directory with archives or repositories"
    )
    parser.add_argument("--only", metavar="WORD", default="", help="only names that contain WORD")
    options = parser.parse_args(arguments)
    UPSTREAM.mkdir(exist_ok=True)
    results = [fill(name, options.mirror) for name in SOURCES if options.only in name]
    results += [install(name) for name in ENVIRONMENTS if options.only in f"venv-{name}"]
    return 0 if all(results) else 1


def fill(name: str, mirrors: Iterable[Path]) -> bool:
    """Put one source into ./upstream; print its origin, or why it is not available."""
    target, part, (commit, addresses) = UPSTREAM / name, UPSTREAM / f".{name}.part", SOURCES[name]
    if target.is_dir():
        return _report(name, "is there")
    repository = addresses[0].rsplit("/", 1)[1]
    files = (f"{name}.tar.xz", repository, repository.removesuffix(".git"))
    copies = [path for mirror in mirrors for path in (mirror.absolute() / file for file in files)]
    reasons = []
    for origin in [*(str(path) for path in copies if path.exists()), *addresses]:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            unpacked = (
                _unpack(origin, part) if origin.endswith(".tar.xz") else _check_out(origin, commit, part)
            )
        except (OSError, tarfile.TarError, subprocess.SubprocessError) as error:
            reasons.append(f"{origin}: {(getattr(error, 'stderr', None) or str(error)).strip()[-200:]}")
            continue
        unpacked.rename(target)
        shutil.rmtree(part, ignore_errors=True)
        return _report(name, f"from {origin}")
    shutil.rmtree(part, ignore_errors=True)
    remedy = f"link a checkout to {target}, or give make MIRROR=DIR with {files[0]} or {repository}"
    return _report(name, "; ".join([*reasons, remedy]), False)


def _unpack(origin: str, part: Path) -> Path:
    """Unpack an archive and return its directory, which has the archive's name."""
    inside = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.10.12 and 3.11.4
    with tarfile.open(origin) as stream:
        stream.extractall(part, **inside)
    return part / Path(origin).name.removesuffix(".tar.xz")


def _git(directory: Path, *arguments: str, check: bool = True) -> str:
    line, variables = ["git", "-C", str(directory), *arguments], {**os.environ, **NO_PROMPT}
    done = subprocess.run(line, env=variables, check=check, capture_output=True, text=True, timeout=TIMEOUT_S)
    return done.stdout


def _check_out(origin: str, commit: str, part: Path) -> Path:
    """Write the files of one commit, from a repository on this machine or elsewhere."""
    return _copy(origin, commit, part) if Path(origin).is_dir() else _clone(origin, commit, part)


def _copy(origin: str, commit: str, part: Path) -> Path:
    """Write the files of a commit of a repository on this machine, which may lack large pictures.

    `git fetch` and `git archive` refuse a repository in which an object is missing.
    """
    _git(part, "clone", "--quiet", "--shared", "--no-checkout", origin, ".")
    _git(part, "read-tree", commit)
    _git(part, "update-ref", "--no-deref", "HEAD", commit)
    _git(part, "checkout-index", "--all", "--quiet", check=False)
    missing = _git(part, "ls-files", "--deleted").splitlines()
    if sources := [name for name in missing if name.endswith((".py", ".sh", ".yaml", ".txt"))]:
        raise OSError(f"the repository lacks {', '.join(sources[:3])}")
    return part


def _clone(origin: str, commit: str, part: Path) -> Path:
    """Clone one commit without history, or everything if the server sends no single commits."""

    def git(*arguments: str) -> None:
        _git(part, *arguments)

    git("init", "--quiet")
    git("remote", "add", "origin", origin)
    try:
        git("fetch", "--quiet", "--depth=1", "origin", commit)
    except subprocess.CalledProcessError:
        git("fetch", "--quiet", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*")
    git("-c", "advice.detachedHead=false", "checkout", "--quiet", commit)
    return part


def install(name: str) -> bool:
    """Create one environment, or update it to its requirements.

    NAME-alone.txt has requirements that are installed without their dependencies, if there are any.
    """
    python, requirements = interpreter(name), Path(__file__).with_name(f"{name}.txt")
    home, alone = python.parents[1], requirements.with_name(f"{name}-alone.txt")
    if home.is_symlink():
        return _report(home.name, "is a link", os.access(python, os.X_OK))
    files = [(requirements, [])] + ([(alone, ["--no-deps"])] if alone.exists() else [])
    digest = hashlib.sha256(b"".join(file.read_bytes() for file, _ in files)).hexdigest()
    stamp = home / STAMP
    if stamp.is_file() and stamp.read_text() == digest:
        return _report(home.name, "is there")
    shutil.rmtree(home, ignore_errors=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += [] if ENVIRONMENTS[name] else ["--no-compile"]  # most of MindSpore is never imported
    try:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        for file, options in files:
            subprocess.run([*pip, *options, "--requirement", str(file)], check=True)
    except subprocess.CalledProcessError as error:
        return _report(home.name, f"{error}; or link an environment to {home}", False)
    stamp.write_text(digest)
    return _report(home.name, "made")


def _report(name: str, message: str, success: bool = True) -> bool:
    print(f"{name}: {message}" if success else f"error: {name}: {message}", flush=True)
    return success


if __name__ == "__main__":
    sys.exit(main())
