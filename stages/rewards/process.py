"""Calls of user functions and math-verify in a process of their own, with time limits.

A limit that the trainer's process sets for itself is not reliable: a library replaces the alarm, and code in
C ignores signals. Here the process is killed, with all that the functions have started, and started again for
the next call. It is not forked from the trainer (MindSpore has threads by then) but a new interpreter that
imports the functions only, in a stage as they were planned (planned_code.py). It lives as long as this one:
modules are imported and their variables kept from step to step, except when a limit was exceeded.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stages import own_packages
from stages.base.errors import InputError
from stages.rewards import planned_code
from stages.rewards.messages import LENGTH, MATHS, WHERE_SIGNAL, Plain

SINGLE_CALLS = 5
"""Time for scoring the completions of a step one by one, in multiples of reward.timeout_s."""
MATHS_SHARE = 1 / 12
"""Time for an answer that math-verify compares, in multiples of reward.timeout_s."""
HOPELESS = 2
"""Completions that must end without a result, before any has one, for the others not to be tried."""
IMPORT_LIMIT_S = 600.0
POLL_S = 0.2
PROGRAM = """
import sys
descriptor, root, *path = sys.argv[1:]
sys.path[:], sys.argv[1:] = [root, *path], []
from stages import own_packages
own_packages.install()
sys.path[:] = path
from stages.rewards.child import main
main(int(descriptor))
"""
"""-c, and not -m: files of the user's must not come before this interpreter's path, or for our packages."""


@dataclass(frozen=True)
class Failure:
    """Reason why a completion has no value."""

    message: str
    is_unusable: bool = False
    """True if the ground truth can't be compared with anything, which is not the function's fault."""
    is_late: bool = False
    """True if a time limit was exceeded."""


Outcome = float | Failure
Result = list[Outcome] | Failure
"""Outcomes of a call, or why it has none."""


@dataclass(frozen=True)
class Batch:
    """Completions that are scored together; all sequences have one item for each."""

    completions: Sequence[str]
    solutions: Sequence[str]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Further arguments by name: prompts, and the dataset's columns."""

    def __len__(self) -> int:
        return len(self.completions)

    def take(self, rows: Sequence[int]) -> Batch:
        """Return some of the completions."""
        columns = {name: [column[row] for row in rows] for name, column in self.columns.items()}
        completions, solutions = (
            [texts[row] for row in rows] for texts in (self.completions, self.solutions)
        )
        return Batch(completions, solutions, columns)


@dataclass(frozen=True)
class Accepted:
    """The arguments that an imported function accepts."""

    is_async: bool
    names: frozenset[str] | None
    """Names of its parameters besides completions and solutions; None: any."""
    required: tuple[str, ...]
    """Those without a default."""

    def of(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return those of `columns` that the function accepts."""
        return {
            name: list(column) for name, column in columns.items() if self.names is None or name in self.names
        }


@dataclass
class Scored:
    """Outcomes of one function for the completions of a batch."""

    outcomes: list[Outcome]
    single: str = ""
    """Why the outcomes are those of calls with one completion each; empty if they are not."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Amounts that a service counted for all completions of the batch, by the name of a metric."""

    def take(self, rows: slice) -> Scored:
        """Return the outcomes of some of the completions."""
        return Scored(self.outcomes[rows], self.single)


class NoReplyError(Exception):
    """The process has not replied in time, or has ended."""

    def __init__(self, message: str, is_late: bool) -> None:
        super().__init__(message)
        self.failure = Failure(message, is_late=is_late)


class ScoringProcess:
    """A process that calls reward functions; it is started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._place: tuple[object, ...] = ()
        self._accepted: dict[str, Accepted] = {}
        self._lock = threading.RLock()  # verl's reward manager scores in several threads

    def load(self, names: Sequence[str]) -> dict[str, Accepted]:
        """Import functions `module:function`, unless they are; return the arguments that they accept.

        Raises:
            InputError: a module or function does not exist, or is not callable.
        """
        with self._lock, self._ended_by_errors():
            self._start()
            wanted = [name for name in names if name not in self._accepted]
            for name in wanted:
                deadline = time.monotonic() + IMPORT_LIMIT_S
                try:
                    self._send({"load": [name]}, deadline, IMPORT_LIMIT_S)
                    reply = self._receive(deadline, IMPORT_LIMIT_S)
                except NoReplyError as error:
                    raise InputError("reward.functions", name, f"can't be imported: {error}") from error
                if "fatal" in reply:
                    raise _refusal(name, reply)
                accepts = reply["accepts"]
                taken = None if accepts is None else frozenset(accepts)
                self._accepted[name] = Accepted(reply["is_async"], taken, tuple(reply["requires"]))
            return {name: self._accepted[name] for name in names}

    def score(self, names: Sequence[str], batch: Batch, timeout_s: float) -> dict[str, Scored]:
        """Call each function once with all completions; asynchronous functions run together.

        If a call raises or exceeds `timeout_s`, the completions are scored one by one to find those that
        fail, within SINGLE_CALLS · timeout_s in total, and the function is called again with the others.
        math-verify always compares one by one, each answer within MATHS_SHARE · timeout_s.

        Raises:
            InputError: a function can't be imported, or does not return one value for each completion.
        """
        with self._lock, self._ended_by_errors():
            accepted = self.load(names)
            for name, each in accepted.items():
                if missing := [key for key in each.required if key not in batch.columns]:
                    rule = f"has a parameter {', '.join(missing)}, for which there is no column"
                    known = ", ".join(batch.columns) or "none"
                    raise InputError("reward.functions", name, rule, f"name one that there is: {known}")
            groups = [[name] for name in names if not accepted[name].is_async]
            groups.append([name for name in names if accepted[name].is_async])
            scored: dict[str, Scored] = {}
            for group in filter(None, groups):
                if not len(batch):
                    scored |= {name: Scored([]) for name in group}
                elif group == [MATHS]:
                    scored[MATHS] = Scored(self._singly(MATHS, batch, MATHS_SHARE * timeout_s, timeout_s))
                else:
                    together = self._together(group, batch, timeout_s)
                    scored |= {
                        name: self._after(result, name, batch, timeout_s)
                        if isinstance(result, Failure)
                        else Scored(result)
                        for name, result in together.items()
                    }
            return scored

    def _together(self, names: Sequence[str], batch: Batch, timeout_s: float) -> dict[str, Result]:
        """Call functions with all completions within one time limit; return their results."""
        accepted, results = self.load(names), dict[str, Result]()
        columns = {name: accepted[name].of(batch.columns) for name in names}
        request = {"call": columns, "completions": batch.completions, "solutions": batch.solutions}
        fatal: list[tuple[str, Plain]] = []
        deadline = time.monotonic() + timeout_s
        try:
            self._send(request, deadline, timeout_s)
            for _ in names:
                reply = self._receive(deadline, timeout_s)
                if "fatal" in reply:
                    fatal.append((reply["name"], reply))
                results[reply["name"]] = _result(reply)
        except NoReplyError as error:
            results = {name: results.get(name, error.failure) for name in names}
        if fatal:
            raise _refusal(*fatal[0])
        return {name: results[name] for name in names}

    def _after(self, failure: Failure, name: str, batch: Batch, timeout_s: float) -> Scored:
        """Score without the completions that make a call fail."""
        if len(batch) == 1:
            return Scored([failure])
        outcomes = self._singly(name, batch, timeout_s, timeout_s)
        working = [row for row, outcome in enumerate(outcomes) if not isinstance(outcome, Failure)]
        if not working:
            return Scored(outcomes)
        again: Result = failure
        if len(working) < len(batch):
            again = self._together([name], batch.take(working), timeout_s)[name]
        if isinstance(again, Failure):
            return Scored(outcomes, again.message + ("; raise reward.timeout_s" if again.is_late else ""))
        for row, outcome in zip(working, again, strict=True):
            outcomes[row] = outcome
        return Scored(outcomes)

    def _singly(self, name: str, batch: Batch, limit_s: float, timeout_s: float) -> list[Outcome]:
        """Call a function with one completion at a time, each within `limit_s`."""
        outcomes, stopped, last = list[Outcome](), 0, Failure("")
        total_s = SINGLE_CALLS * timeout_s
        end = time.monotonic() + total_s
        while len(outcomes) < len(batch):
            if time.monotonic() >= end:
                left = Failure(f"not tried: scoring one by one took {total_s:g} s", is_late=True)
            elif stopped == len(outcomes) >= HOPELESS:
                left = replace(last, message=f"not tried: the first {stopped} gave no result")
            elif (failure := self._in_turn(name, batch, outcomes, limit_s, end)) is None:
                break
            else:
                outcomes.append(last := failure)
                stopped += 1
                continue
            outcomes += [left] * (len(batch) - len(outcomes))
        return outcomes

    def _in_turn(
        self, name: str, batch: Batch, outcomes: list[Outcome], limit_s: float, end: float
    ) -> Failure | None:
        """Add the outcomes of calls with one completion each; return why one had to be stopped, if it had."""
        rest = batch.take(range(len(outcomes), len(batch)))
        columns = self.load([name])[name].of(rest.columns)
        request = {"completions": rest.completions, "solutions": rest.solutions, "columns": columns}
        try:
            self._send({"single": name, **request}, time.monotonic() + limit_s, limit_s)
            while len(outcomes) < len(batch):
                reply = self._receive(min(time.monotonic() + limit_s, end), limit_s)
                if "fatal" in reply:
                    raise _refusal(name, reply)
                result = _result(reply)
                outcomes += [result] if isinstance(result, Failure) else result
        except NoReplyError as error:
            return error.failure
        return None

    def close(self) -> None:
        """End the process, and with it all that the functions have started."""
        with self._lock:
            process, self._process = self._process, None
            self._accepted.clear()
            if self._link is not None:
                self._link.close()
            if process is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self) -> None:
        """Start the process unless it runs, with the path and the directory of this interpreter."""
        place = (tuple(sys.path), os.getcwd())
        if self._process is not None and (self._process.poll() is not None or place != self._place):
            self.close()
        if self._process is not None:
            return
        planned_code.check()  # the process does so too, but could not say why it does not start
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), own_packages.ROOT, *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=2,  # stdout may be a command's result; in a stage both are the log
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # killed as a group
            )
        self._place = place

    @contextlib.contextmanager
    def _ended_by_errors(self) -> Iterator[None]:
        """End the process when the block is left by an error: its remaining replies would be misread."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _send(self, request: Plain, deadline: float, limit_s: float) -> None:
        assert self._link is not None
        data = json.dumps(request, default=str).encode()
        self._link.settimeout(max(POLL_S, deadline - time.monotonic()))
        try:
            self._link.sendall(LENGTH.pack(len(data)) + data)
        except TimeoutError as error:
            raise self._no_reply(limit_s) from error
        except OSError as error:
            raise self._no_reply(None) from error

    def _receive(self, deadline: float, limit_s: float) -> Plain:
        (size,) = LENGTH.unpack(self._read(LENGTH.size, deadline, limit_s))
        reply: Plain = json.loads(self._read(size, deadline, limit_s))
        return reply

    def _read(self, size: int, deadline: float, limit_s: float) -> bytes:
        assert self._link is not None and self._process is not None
        data = bytearray()
        while len(data) < size:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._no_reply(limit_s)
            self._link.settimeout(min(left_s, POLL_S))
            try:
                part = self._link.recv(min(size - len(data), 1 << 20))
            except TimeoutError:
                if self._process.poll() is None:
                    continue
                part = b""  # what a function has started may keep the socket open
            except ConnectionError:
                part = b""
            if not part:
                raise self._no_reply(None)
            data += part
        return bytes(data)

    def _no_reply(self, limit_s: float | None) -> NoReplyError:
        """End the process, and return the error: a limit in seconds was exceeded, or (None) it has ended."""
        assert self._process is not None
        process = self._process
        if limit_s is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(WHERE_SIGNAL)  # the log then shows where it was
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
            self.close()
            return NoReplyError(f"no result after {limit_s:g} s", is_late=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        self.close()
        code = process.returncode
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        return NoReplyError(f"ended its process {how}", is_late=False)


def _result(reply: Plain) -> Result:
    """Return the outcomes in a reply, or why there are none."""
    if "values" not in reply:
        return Failure(reply.get("raised", ""), reply.get("unusable", False))
    outcomes: list[Outcome] = list(reply["values"])
    for row, is_unusable, message in reply["failures"]:
        outcomes[row] = Failure(message, is_unusable)
    return outcomes


def _refusal(name: str, reply: Plain) -> InputError:
    if "file" in reply:
        return InputError(reply["file"], None, reply["fatal"], reply["remedy"])
    return InputError("reward.functions", name, reply["fatal"], reply.get("remedy", "correct the function"))


PROCESS = ScoringProcess()
"""The process of this interpreter."""
atexit.register(PROCESS.close)
