"""The reward `code`: the Python program in a completion is run against the row's tests in a sandbox.

The sandbox is bubblewrap (https://github.com/containers/bubblewrap): no network, the machine's programs and
libraries read-only, no other file of the machine, and limits of time, memory, processes and files.
code_sandbox.py runs inside. What a program prints for an input is compared outside. Assertions run in the
program's own process: one that ends early does not pass them, but one that searches the interpreter's memory,
or whose objects are equal to everything, can.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeGuard

from stages.base.errors import InputError
from stages.rewards.config import SANDBOX, SANDBOX_REMEDY, CodeConfig
from stages.rewards.process import Batch, Failure, Outcome

INSIDE = Path(__file__).with_name("code_sandbox.py")
FENCED = re.compile(r"^```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE | re.IGNORECASE)
USERS = range(50_000, 60_000)
"""Users that programs run as if this process is root: each has its own, whose processes the kernel counts."""
START_S = 10.0
"""Time for starting the sandbox and its interpreter, on a busy machine."""
FILE_MIB = 64
"""Size of a file, and of what a program prints."""
OUTPUT_MIB = 4
"""Most that is read of what a program prints."""
SCRATCH = "/tmp"  # noqa: S108  inside the sandbox
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


def code(config: CodeConfig, batch: Batch) -> list[Outcome]:
    """Return the reward of each completion: 1.0 if the tests pass.

    Raises:
        InputError: bubblewrap makes no sandbox here, or the column of tests does not exist.
    """
    check(config)
    if config.tests is None:
        tests: Sequence[Any] = batch.solutions
    elif config.tests in batch.columns:
        tests = batch.columns[config.tests]
    else:
        remedy = f"name one that there is: {', '.join(batch.columns) or 'none'}"
        raise InputError("reward.code.tests", config.tests, "is no column", remedy)
    with ThreadPoolExecutor(min(config.workers, len(batch)) or 1) as pool:
        return list(pool.map(functools.partial(_outcome, config), batch.completions, tests))


@functools.cache
def check(config: CodeConfig) -> None:
    """Run a program that passes.

    Raises:
        InputError: bubblewrap is missing, or cannot make a sandbox here.
    """
    if shutil.which(SANDBOX) is None:
        rule = "needs bubblewrap, which is not installed here"
        raise InputError("reward.functions", "code", rule, SANDBOX_REMEDY)
    run = _Run(config, "", ["pass"], None)
    if not run.passed:
        cause = run.message or "a program without content does not pass"
        rule = f"cannot make its sandbox with bubblewrap here: {cause}"
        remedy = "allow namespaces (in a container: --security-opt seccomp=unconfined), or raise the limits"
        raise InputError("reward.functions", "code", rule, remedy)


def program_of(completion: str) -> str:
    """Return the last fenced block of Python after </think>, or the complete text if there is none."""
    answer = completion.rpartition("</think>")[2]
    blocks = FENCED.findall(answer)
    return str(blocks[-1]) if blocks else answer


def read_tests(value: Any) -> list[str] | list[tuple[str, str]]:
    """Return assertions as sources, or pairs of input and output.

    Raises:
        ValueError: the value has none of the forms of CodeConfig.tests.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):  # a program may begin with a bracket
            value = json.loads(value)
    if isinstance(value, str):
        value = [value]
    if isinstance(value, dict) and not value.get("fn_name"):
        inputs, outputs = value.get("inputs"), value.get("outputs")
        if _are_texts(inputs) and _are_texts(outputs) and len(inputs) == len(outputs):
            return list(zip(inputs, outputs, strict=True))
    if _are_texts(value) and not any(map(_is_value, value)):
        return list(value)
    raise ValueError(f"the tests have no known form: {str(value)[:100]!r}")


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _is_value(text: str) -> bool:
    """Return True for a number or another plain value, which every program would pass as a test."""
    try:
        ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return not text.strip()
    return True


def _outcome(config: CodeConfig, completion: str, value: Any) -> Outcome:
    """Return the reward of one completion; a program that fails or takes too long earns 0.0."""
    try:
        tests = read_tests(value)
    except ValueError as error:
        return Failure(str(error))
    program, passed = program_of(completion), 0
    pairs = [test for test in tests if not isinstance(test, str)]
    for case in (*pairs, *([] if pairs else [None])):
        run = _Run(config, program, [] if pairs else tests, case)
        if run.message:
            return Failure(run.message)
        passed += run.passed
        if pairs and not run.passed and not config.partial:
            break
    return passed / len(tests) if config.partial else float(passed == len(tests))


class _Run:
    """One run of a program: with assertions, or with an input whose output is compared."""

    def __init__(
        self, config: CodeConfig, program: str, assertions: Sequence[Any], case: tuple[str, str] | None
    ) -> None:
        self.passed, self.message = 0, ""
        self._config, self._token = config, secrets.token_hex(16)
        limits = [config.timeout_s, config.memory_mib, config.processes, config.files, FILE_MIB]
        values = {"program": program, "tests": list(assertions), "token": self._token, "limits": limits}
        with contextlib.ExitStack() as stack:
            # files and not pipes: nobody has to read them while the program runs
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(5)]
            request, report, stdin, stdout, stderr = files
            stdin.write((case[0] if case else "").encode())
            request.write(json.dumps(values).encode())
            for file in (stdin, request):
                file.seek(0)
            code = self._start([request.fileno(), report.fileno()], stdin, stdout, stderr)
            self._read(code, _text(report), _text(stdout), _text(stderr), case[1] if case else None)

    def _start(self, descriptors: list[int], stdin: IO[bytes], *outputs: IO[bytes]) -> int | None:
        """Run the program; return its exit code, or None if it was stopped after its time."""
        user = random.choice(USERS) if os.geteuid() == 0 else 0  # noqa: S311
        process = subprocess.Popen(
            [*_sandbox(self._config, user), *map(str, (*descriptors, user))],
            stdin=stdin,
            stdout=outputs[0],
            stderr=outputs[1],
            pass_fds=descriptors,
            start_new_session=True,
        )
        try:
            return process.wait(2 * self._config.timeout_s + START_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                _stop(process)

    def _read(self, code: int | None, report: str, printed: str, errors: str, expected: str | None) -> None:
        """Read what has passed. Lines without the run's token do not count: the program may write some."""
        lines = (line.split() for line in report.splitlines())
        events = [words[1:] for words in lines if words[:1] == [self._token]]
        if ["started"] not in events:
            self.message = f"{SANDBOX} did not start the program (exit code {code}): {errors[:300].strip()}"
        elif expected is None:
            self.passed = len({words[1] for words in events if words[0] == "passed"})
        else:
            self.passed = int(code == 0 and _lines(printed) == _lines(expected))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End all that runs in a sandbox: its first process, with which the kernel ends the others.

    bubblewrap then ends by itself. If it was killed first, nobody would collect its child in a container
    whose first process does not do so.
    """
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        process.wait(5)
    process.kill()  # --die-with-parent ends what is left
    process.wait()


def _text(file: IO[bytes]) -> str:
    """Return what a program wrote into a file, up to a limit."""
    file.seek(0)
    return file.read(OUTPUT_MIB << 20).decode(errors="replace")


def _lines(text: str) -> list[str]:
    """Return the lines without spaces at their ends, and without blank lines at the end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _sandbox(config: CodeConfig, user: int) -> list[str]:
    """Return the command up to the descriptors: bubblewrap, its mounts, and the interpreter.

    For root the kernel does not limit processes, so that the program inside becomes another user. Others get
    a namespace of users, in which their processes are counted.
    """
    interpreter, directories = _interpreter(config.python or sys.executable, config.python is not None)
    arguments = ["--cap-drop", "ALL"]
    arguments += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if user else ["--unshare-user"]
    arguments += [f"--unshare-{name}" for name in ("ipc", "pid", "net", "uts", "cgroup-try")]
    arguments += ["--die-with-parent", "--clearenv"]
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.exists():
            arguments += ["--ro-bind", str(path), str(path)]
    # first, because an interpreter may be below it; it is limited, else a program could fill the memory there
    arguments += ["--perms", "1777", "--size", str(config.memory_mib << 20), "--tmpfs", SCRATCH]
    parents = (str(parent) for path in directories for parent in reversed(Path(path).parents[:-1]))
    for directory in dict.fromkeys(parents):
        if not _is_system(directory):  # bubblewrap would make them for root alone
            arguments += ["--perms", "0755", "--dir", directory]
    for directory in directories:
        if not _is_system(directory):
            arguments += ["--ro-bind", directory, directory]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", str(INSIDE), f"/{INSIDE.name}"]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/"]
    arguments += ["--chdir", SCRATCH, "--setenv", "HOME", SCRATCH, "--setenv", "OMP_NUM_THREADS", "1"]
    options = ["-I", "-X", "utf8", *([] if config.python else ["-S"])]
    return [SANDBOX, *arguments, interpreter, *options, f"/{INSIDE.name}"]


def _is_system(path: str) -> bool:
    return path == "/usr" or path.startswith("/usr/")


@functools.cache
def _interpreter(python: str, with_packages: bool) -> tuple[str, tuple[str, ...]]:
    """Return the interpreter to start, and the directories that it needs."""
    names = "sys.executable, sys.prefix, sys.base_prefix, sys._base_executable"
    program = f"import json, sys; print(json.dumps([{names}]))"
    try:
        done = subprocess.run([python, "-I", "-c", program], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError("reward.code.python", python, f"does not run: {error}") from error
    executable, prefix, base, base_executable = json.loads(done.stdout)
    if not with_packages:
        return os.path.realpath(base_executable), (os.path.realpath(base),)
    return executable, tuple(dict.fromkeys((os.path.realpath(base), base, prefix)))
