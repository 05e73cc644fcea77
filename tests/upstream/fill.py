"""Download of the sources and environments of ./upstream: `make upstream`. Complete ones are left alone.

A source is a checkout from a mirror on this machine, or else from a public address. Not every machine
reaches one, so a missing source is listed, and the tests that need it are skipped. An environment comes
from a package index, like grpoflow's own packages: one that can't be installed is an error, except for
vLLM's, whose build of torch is in PyTorch's own index alone (--index=https://download.pytorch.org/whl/cpu).
A source is complete when it has its final name, an environment when its stamp file is written.
Uses only the standard library: a bare interpreter runs it before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.upstream.sources import UPSTREAM, interpreter  # noqa: E402

NO_PROMPT = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
TIMEOUT_S = 600.0
ANSWER_S = 15.0
"""Time in which a server must answer; git itself would wait minutes for one behind a firewall."""
STALLED = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60")
"""Options by which git ends a download that stands still."""
STAMP = "grpoflow-requirements"
"""File in an environment with the digest of its requirements."""


def _hosts(name: str, *hosts: str) -> tuple[str, ...]:
    return tuple(f"https://{host}/{name}.git" for host in hosts)


ASCEND = ("gitcode.com/Ascend", "gitee.com/ascend")
MINDRLHF = _hosts("mindrlhf", "gitee.com/mindspore", "github.com/mindspore-ai")
MINDFORMERS = _hosts("mindformers", "gitee.com/mindspore", "github.com/mindspore-lab")
AREAL = _hosts("AReaL", "github.com/areal-project")
MEGATRON = _hosts("Megatron-LM", "github.com/NVIDIA", "gitee.com/mirrors")
RL, LLM, MINDSPEED = (_hosts(name, *ASCEND) for name in ("MindSpeed-RL", "MindSpeed-LLM", "MindSpeed"))
SOURCES = {
    "mindrlhf-e8a8fc1": ("e8a8fc1ca5bf27c47287525c007f2c37adefcea2", MINDRLHF),
    "mindrlhf-0cd087455": ("0cd0874559d5658e5987ba11718a920384691c59", MINDRLHF),
    "mindrlhf-2d0e84d": ("2d0e84de5bb8254ddc200c2b862278e69c12de8b", MINDRLHF),
    "mindformers-051d65f": ("051d65f2ec7656d2d801428d84edab8ff58577ed", MINDFORMERS),
    "mindspeed-rl-c21465a": ("c21465aca84fd0fc151707327dcbc81a1dc4a162", RL),
    "mindspeed-llm-9930a505": ("9930a5057acdd1976bce10f49d87b34b8d52c036", LLM),
    "mindspeed-ca70c133": ("ca70c1338f1b3d1ce46a0ea426e5779ae1312e2e", MINDSPEED),
    "areal-2262610b8": ("2262610b8c87abe355b98194afcb6d0846c57795", AREAL),
    "megatron-core_v0.8.0": ("baf94af3c667248865f23df73b9fb8e2395e6fd0", MEGATRON),
}
"""Name of a directory in ./upstream and of an archive -> commit, public addresses in order."""
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "verl": (),
    "areal": (),
    "vllm": (),
    "mindspore": (),
    "mindspeed": (
        "mindspeed-rl-c21465a",
        "mindspeed-llm-9930a505",
        "mindspeed-ca70c133",
        "megatron-core_v0.8.0",
    ),
}
"""Name -> sources without which nothing uses it: it is then not installed."""
LOCKS = {"vllm": ROOT / "stages/engines/verl/locks/cpu_vllm.txt"}
"""Complete lists of packages, each installed without its dependencies."""
OPTIONAL = ("vllm",)
"""Environments without which tests are skipped, and nothing fails."""
OLDEST_PYTHON = {"areal": (3, 11)}
"""Oldest Python of an environment; it is not installed by an older one."""
COMPILED = "verl"
"""Environment with bytecode from the start, because many processes import much of it at once."""
UNREACHABLE: dict[str, str] = {}
"""Servers that did not answer -> the reason; each is asked once."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return exit code 1 if an environment can't be installed, else 0: sources may be missing."""
    parser = argparse.ArgumentParser(prog="make upstream", description=__doc__)
    parser.add_argument(
        "--mirror", action="append", default=[], type=Path, help="directory with archives or repositories"
    )
    parser.add_argument("--index", action="append", default=[], help="further package index for pip")
    parser.add_argument("--only", metavar="WORD", default="", help="only names that contain WORD")
    options = parser.parse_args(arguments)
    for mirror in options.mirror:
        if not mirror.is_dir():
            parser.error(f"{mirror} is not a directory")
    UPSTREAM.mkdir(exist_ok=True)
    missing = [name for name in SOURCES if options.only in name and not fill(name, options.mirror)]
    environments = [name for name in ENVIRONMENTS if options.only in f"venv-{name}"]
    failed = [name for name in environments if not install(name, options.index)]
    missing += [f"venv-{name}" for name in failed if name in OPTIONAL]
    if missing:
        print(f"missing: {', '.join(missing)}; tests that need them are skipped", flush=True)
    return 1 if set(failed) - set(OPTIONAL) else 0


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
    print(f"{name}: missing: {'; '.join([*reasons, remedy])}", flush=True)
    return False


def _unpack(origin: str, part: Path) -> Path:
    """Unpack an archive and return its directory, which has the archive's name."""
    inside = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.10.12 and 3.11.4
    with tarfile.open(origin) as stream:
        stream.extractall(part, **inside)
    return part / Path(origin).name.removesuffix(".tar.xz")


def _git(directory: Path, *arguments: str, check: bool = True, timeout_s: float = TIMEOUT_S) -> str:
    """Return git's output. At a timeout its helpers are killed, too: one that waits keeps the pipe open."""
    line, variables = ["git", "-C", str(directory), *STALLED, *arguments], {**os.environ, **NO_PROMPT}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(line, env=variables, text=True, start_new_session=True, **pipes)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, line, output, errors)
    return output


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


def _reach(origin: str, part: Path) -> None:
    """Raise an error at once if the server of a repository does not answer."""
    server = urlsplit(origin).netloc
    if reason := UNREACHABLE.get(server):
        raise OSError(reason)
    try:
        _git(part, "ls-remote", origin, "HEAD", timeout_s=ANSWER_S)
    except subprocess.TimeoutExpired:
        UNREACHABLE[server] = f"{server} does not answer within {ANSWER_S:g} s"
        raise OSError(UNREACHABLE[server]) from None
    except subprocess.CalledProcessError as error:
        if (
            "unable to access" in error.stderr
        ):  # neither an unknown repository nor one that asks for a password
            UNREACHABLE[server] = error.stderr.strip().rpartition("': ")[2]
        raise


def _clone(origin: str, commit: str, part: Path) -> Path:
    """Clone one commit without history, or everything if the server sends no single commits."""
    _reach(origin, part)

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


def install(name: str, indexes: Iterable[str] = ()) -> bool:
    """Create one environment, or update it to its requirements; return False if that failed.

    NAME.txt has requirements, NAME-alone.txt those that are installed without their dependencies; one of
    the files may be missing. vLLM's environment is the one that grpoflow recommends to its users.
    """
    python, requirements = interpreter(name), Path(__file__).with_name(f"{name}.txt")
    home, alone = python.parents[1], LOCKS.get(name, requirements.with_name(f"{name}-alone.txt"))
    if home.is_symlink():
        return _report(home.name, "is a link", os.access(python, os.X_OK))
    if absent := [source for source in ENVIRONMENTS[name] if not (UPSTREAM / source).is_dir()]:
        return _report(home.name, f"is not needed without {', '.join(absent)}")
    if sys.version_info < OLDEST_PYTHON.get(name, ()):
        return _report(home.name, f"needs Python {'.'.join(map(str, OLDEST_PYTHON[name]))}")
    known = ((requirements, []), (alone, ["--no-deps"]))
    files = [(file, options) for file, options in known if file.exists()]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file, _ in files)).hexdigest()
    stamp = home / STAMP
    if stamp.is_file() and stamp.read_text() == digest:
        return _report(home.name, "is there")
    shutil.rmtree(home, ignore_errors=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += [f"--extra-index-url={index}" for index in indexes]
    pip += [] if name == COMPILED else ["--no-compile"]  # most of MindSpore is never imported
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
