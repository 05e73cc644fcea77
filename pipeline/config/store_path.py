"""The path of the store: its rules, and the store of a command that reads nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.errors import ConfigError, Problem

VARIABLE, DEFAULT = "GRPOFLOW_STORE", "store"
"""As in conf/config.yaml."""
PLAIN = re.compile(r"store=([\w./+-]*/[\w./+-]*)", re.ASCII)
"""Overrides with a path that means the same with and without Hydra's grammar."""
MOST_STORE_BYTES = 440
"""Length of a store's path with which SQLite, which MindRecord uses, opens the index of a dataset: it accepts
504 bytes, of which up to 64 are the rest of the path (/tokenize/.building-DIGITS+N/train.mindrecord.db)."""
MOST_NAME_BYTES = 255
"""Length of a file name that Linux accepts."""


def store_path(overrides: Sequence[str], config_dir: Path | None = None) -> Path:
    """Return the store of overrides; a configuration that is invalid elsewhere does not matter.

    Raises:
        ConfigError: the path is invalid, or an override names a key or choice that does not exist.
    """
    plain = [PLAIN.fullmatch(override) for override in overrides]
    store: object = os.environ.get(VARIABLE, DEFAULT)
    if config_dir is not None or not all(plain):  # for example an experiment, which may set the store
        from pipeline.config.compose import compose  # imports all sections

        store = compose(overrides, config_dir)["store"]
    elif plain and plain[-1] is not None:
        store = plain[-1][1]
    if not isinstance(store, str):
        raise ConfigError([Problem("store", store, "must be text", "quote it, or give a path with a slash")])
    if problems := list(store_problems(store)):
        raise ConfigError(problems)
    return Path(store)


def store_problems(store: str) -> Iterator[Problem]:
    """Yield a problem unless the store is a directory whose path SQLite and Linux can open."""
    source = "ours: pipeline/store"
    paths = [os.fsencode(find(store)) for find in (os.path.abspath, os.path.realpath)]
    length, longest = max(map(len, paths)), max(len(name) for name in paths[0].split(b"/"))
    if not store:
        remedy = "give store=DIR, or unset GRPOFLOW_STORE"
        yield Problem("store", store, "must name a directory", remedy, source)
    elif "://" in store:
        rule = "is a URL; a store is a directory of this machine"
        remedy = "give store=DIR, and share artifacts at a URL with remote=URL"
        yield Problem("store", store, rule, remedy, source)
    elif store.startswith("~"):  # which only shells replace
        remedy = f"use {os.path.expanduser(store)}"
        yield Problem("store", store, "must be a complete path: ~ is not replaced", remedy, source)
    elif length > MOST_STORE_BYTES:
        rule = f"is a path of {length} bytes, must be at most {MOST_STORE_BYTES}"
        remedy = "choose a directory with a shorter path, links followed"
        yield Problem("store", store, rule, remedy, "SQLite's os_unix.c: MAX_PATHNAME")
    elif longest > MOST_NAME_BYTES:
        rule = f"has a name of {longest} bytes, must be at most {MOST_NAME_BYTES}"
        yield Problem("store", store, rule, "shorten it", source)
    elif file := _file_in_the_way(os.path.abspath(store)):
        yield Problem("store", store, f"must be a directory: {file} is none", "give store=DIR", source)


def _file_in_the_way(path: str) -> str | None:
    """Return the path, or the first of its parents that exists, if it is not a directory."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return None if os.path.isdir(path) else path
