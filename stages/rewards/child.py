"""Program of the process that calls user functions and math-verify; process.py starts it and sets the limits.

Only the functions are imported here, nothing of the trainer. Messages in both directions are a length
(LENGTH) and JSON. Requests:

    {"load": [name, …]}                                            one reply per function
    {"call": {name: columns, …}, "completions": […], "solutions": […]}   one reply per function
    {"single": name, "columns": {…}, "completions": […], "solutions": […]}   one reply per completion

A reply names its function and has either "values" with "failures" ([row, the truth is unusable, message]),
or "raised" (message) with "unusable", or "fatal": the rule that the function breaks, or a planned "file".
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import inspect
import io
import json
import math
import os
import queue
import reprlib
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.rewards.functions import UnscorableError
from stages.rewards.messages import LENGTH, MATHS, OURS, WHERE_SIGNAL, Plain

TEXTS = ("completions", "solutions")


class Function:
    """An imported reward function, and the arguments that it accepts."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        called = function if inspect.isroutine(function) else type(function).__call__
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # some functions written in C
            parameters = []
        positional = [each.name for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD]
        named = {
            each.name: each
            for each in parameters
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        }
        takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
        # (completions, truths) and (c, s) get both in this order; (prompts, completions, **columns), as in
        # TRL, and (completions, **columns) get them by name.
        is_ordered = positional[:1] == ["completions"] and not OURS.issuperset(positional[:2])
        self.by_name = "completions" in named and not is_ordered
        if not self.by_name:
            named = {name: each for name, each in named.items() if name not in positional[:2]}
        self.taken_first = frozenset() if self.by_name else frozenset(positional[:2])
        self.names = None if takes_all else sorted(named)
        self.required = [
            name for name, each in named.items() if each.default is each.empty and name not in TEXTS
        ]

    def accepts(self, name: str) -> bool:
        """Return True if the function can be given an argument by this name."""
        return name not in self.taken_first and (self.names is None or name in self.names)

    def arguments(
        self, completions: Sequence[str], solutions: Sequence[str], columns: Plain
    ) -> tuple[Any, Plain]:
        """Return the positional and the named arguments of a call."""
        named = {name: column for name, column in columns.items() if self.accepts(name)}
        if not self.by_name:
            return (completions, solutions), named
        both = dict(zip(TEXTS, (completions, solutions), strict=True))
        return (), named | {name: texts for name, texts in both.items() if self.accepts(name)}


@dataclass
class Caller:
    """The imported functions, and the way back to the process that asks for their values."""

    link: socket.socket

    def __post_init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.loop = (
            asyncio.new_event_loop()
        )  # one for all steps, so that functions may keep their connections
        asyncio.set_event_loop(self.loop)

    def answer(self, request: Plain) -> None:
        """Reply to a request."""
        for name in request.get("load", ()):
            self.send(name, self._load(name))
        if "single" in request:
            for reply in self._singly(request):
                self.send(request["single"], reply)
        if "call" in request:
            waiting = {}
            for name, columns in request["call"].items():
                if self.functions[name].is_async:
                    waiting[name] = self._await(name, request, columns)
                else:
                    self.send(name, self._call(name, request["completions"], request["solutions"], columns))
            if waiting:
                self.loop.run_until_complete(_together(waiting.values()))

    def send(self, name: str, reply: Plain) -> None:
        """Send a reply; what the function has printed reaches the log before it."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        data = json.dumps({"name": name, **reply}).encode()
        self.link.sendall(LENGTH.pack(len(data)) + data)

    def _load(self, name: str) -> Plain:
        """Import a function; reply with the names of the arguments that it accepts (None: all)."""
        if name not in self.functions:
            module, _, attribute = name.partition(":")
            try:
                function: Any = getattr(importlib.import_module(module), attribute)
            except InputError as error:
                return changed(error)
            except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
                return {
                    "fatal": f"can't be imported: {describe(error)}",
                    "remedy": "make it importable on PYTHONPATH",
                }
            if not callable(function):
                return {"fatal": "must be a function of (completions, solutions)"}
            self.functions[name] = Function(_of_each(function) if name == MATHS else function)
        function = self.functions[name]
        names = None if function.names is None else [each for each in function.names if each not in TEXTS]
        return {"is_async": function.is_async, "accepts": names, "requires": function.required}

    def _call(self, name: str, completions: Sequence[str], solutions: Sequence[str], columns: Plain) -> Plain:
        function = self.functions[name]
        try:
            positional, named = function.arguments(completions, solutions, columns)
            returned = function.function(*positional, **named)
            if inspect.isawaitable(returned):
                returned = self.loop.run_until_complete(_value_of(returned))
            return checked(returned, len(completions))
        except BaseException as error:  # SystemExit too, which would end this process
            return raised(error)

    async def _await(self, name: str, request: Plain, columns: Plain) -> None:
        """Call an asynchronous function and reply as soon as it has ended."""
        function = self.functions[name]
        completions, solutions = request["completions"], request["solutions"]
        try:
            positional, named = function.arguments(completions, solutions, columns)
            reply = checked(await function.function(*positional, **named), len(completions))
        except BaseException as error:
            reply = raised(error)
        self.send(name, reply)

    def _singly(self, request: Plain) -> Iterator[Plain]:
        pairs = zip(request["completions"], request["solutions"], strict=True)
        for row, (completion, solution) in enumerate(pairs):
            columns = {name: [column[row]] for name, column in request["columns"].items()}
            yield self._call(request["single"], [completion], [solution], columns)


async def _together(calls: Iterable[Any]) -> None:
    await asyncio.gather(*calls)


async def _value_of(awaitable: Any) -> Any:
    return await awaitable


def _of_each(function: Callable[[str, str], float]) -> Callable[[list[str], list[str]], list[float]]:
    return lambda completions, solutions: list(map(function, completions, solutions))


def checked(returned: object, count: int) -> Plain:
    """Return the reply for what a function returned for `count` completions."""
    shown = reprlib.repr(returned)
    if isinstance(returned, (str, bytes, Mapping, Set)) or not isinstance(returned, Iterable):
        return {"fatal": f"returned {shown}, not a list with a number for each completion"}
    items = list(returned)
    if len(items) != count:
        return {
            "fatal": f"returned {len(items)} numbers for {count} completions; it must return one for each"
        }
    values: list[float] = []
    failures: list[tuple[int, bool, str]] = []
    for row, item in enumerate(items):
        fault, value = "", 0.0
        if item is None:
            fault = "returned None"
        else:
            try:
                value = float(item)
            except (TypeError, ValueError, OverflowError):
                fault = f"returned {reprlib.repr(item)}, which is no number"
        if not math.isfinite(value):
            fault, value = f"returned {value}, which is not finite", 0.0
        values.append(value)
        if fault:
            failures.append((row, False, fault))
    return {"values": values, "failures": failures}


def raised(error: BaseException) -> Plain:
    """Return the reply for a call that raised."""
    if isinstance(error, InputError):
        return changed(error)
    return {"raised": describe(error), "unusable": isinstance(error, UnscorableError)}


def changed(error: InputError) -> Plain:
    """Return the reply for a module that is not as it was planned (planned_code.py)."""
    problem = error.problem
    return {"file": str(problem.path), "fatal": problem.rule, "remedy": problem.remedy}


def describe(error: BaseException) -> str:
    """Return an exception's text, and the line that raised it unless the text says all."""
    if isinstance(error, UnscorableError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"[:400]


def read_messages(link: socket.socket) -> Iterator[Any]:
    """Yield the messages that arrive, until the other side has ended."""
    with link.makefile("rb") as stream:
        while len(head := stream.read(LENGTH.size)) == LENGTH.size:
            (size,) = LENGTH.unpack(head)
            yield json.loads(stream.read(size))


def _receive(link: socket.socket, requests: queue.SimpleQueue[Plain]) -> None:
    """Queue the requests, and end this process with all that functions have started when they end."""
    try:
        for request in read_messages(link):
            requests.put(request)
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)


def main(descriptor: int) -> None:
    """Answer the requests of a socket until it is closed; functions run in the main thread."""
    os.set_inheritable(descriptor, False)
    link = socket.socket(fileno=descriptor)
    faulthandler.register(WHERE_SIGNAL, all_threads=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    requests = queue.SimpleQueue[Plain]()
    threading.Thread(target=_receive, args=(link, requests), daemon=True).start()
    caller = Caller(link)
    while True:
        caller.answer(requests.get())
