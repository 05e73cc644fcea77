"""Defaults give way to what is typed: only what is typed can contradict what is typed."""

import contextlib
import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

from stages.base.errors import as_override
from stages.base.layout import ROLES
from stages.fetch.config import has_test_file

DEGREES = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel")


def give_way(values: Mapping[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Change what nobody typed and what contradicts something typed; values of a wrong type are left alone.

    Returns:
        The configuration, and what gave way to what.
    """
    typed = {override.lstrip("+").partition("=")[0] for override in overrides}
    changing = _Changing(dict(values), typed)
    for way in (_dataset_source, _warm_up, _samples, _addends, _checks, _held_out, _compat, _cards, _roles):
        with contextlib.suppress(KeyError, TypeError, AttributeError, ZeroDivisionError):
            way(changing)
    return changing.values, tuple(changing.notes)


class _Changing:
    """A configuration, what of it was typed, and what has given way."""

    def __init__(self, values: dict[str, Any], typed: set[str]) -> None:
        self.values, self.typed, self.notes = values, typed, list[str]()
        self._own: set[str] = set()  # sections that are copies already

    def __getitem__(self, path: str) -> Any:
        found: Any = self.values
        for step in path.split("."):
            found = found[step]
        return found

    def typed_of(self, *paths: str) -> list[str]:
        """Which of these keys, and of the keys below them, were typed."""
        return sorted(key for key in self.typed for path in paths if f"{key}.".startswith(f"{path}."))

    def set(self, path: str, value: Any, *because: str) -> None:
        """Let a key give way to others, unless it was typed or they were not."""
        old = self[path]
        because = tuple(self.typed_of(*because))
        if path in self.typed or old == value or not because:
            return
        section, *steps, last = path.split(".")
        if section not in self._own:
            self._own.add(section)
            self.values[section] = copy.deepcopy(self.values[section])
        self[".".join([section, *steps])][last] = value
        told = ", ".join(f"{key}={as_override(self[key])}" for key in because)
        taken = "it is derived" if value is None else f"{as_override(value)} is taken"
        self.notes.append(f"{path}={as_override(old)} gives way to {told}: {taken}")


def _dataset_source(run: _Changing) -> None:
    """Replace the built-in problems by the user's dataset, unless both are requested."""
    keys = [f"dataset.{key}" for key in ("path", "test_path", "hub", "files")]
    given = [key for key in keys if run[key] is not None]
    requested = "dataset" in run.typed or run.typed_of("dataset.arith")
    if run["dataset.source"] != "builtin" or requested or not given:
        return
    run.set("dataset.source", None, *given)
    dataset = run["dataset"]
    if dataset["source"] is not None:
        return
    # the sizes and the name are those of the built-in problems
    replaced = {
        "name": "local" if dataset["path"] is not None else "custom",
        "arith": None,
        "train_rows": None,
    }
    if dataset["path"] is not None and has_test_file(dataset["path"], dataset["test_path"]):
        replaced["test_rows"] = None
    dataset.update({key: value for key, value in replaced.items() if f"dataset.{key}" not in run.typed})


def _warm_up(run: _Changing) -> None:
    for name in ("sft", "train"):
        steps = f"{name}.steps"
        run.set(f"{name}.warmup_steps", min(run[f"{name}.warmup_steps"], max(run[steps], 0)), steps)


def _samples(run: _Changing) -> None:
    """pass@k is estimated from at least k samples."""
    k, samples = "evaluate.k", "evaluate.num_samples"
    run.set(k, min(run[k], run[samples]), samples)
    run.set(samples, max(run[samples], run[k]), k)


def _addends(run: _Changing) -> None:
    fewest, most = "dataset.arith.min_addends", "dataset.arith.max_addends"
    run.set(most, max(run[most], run[fewest]), fewest)
    run.set(fewest, min(run[fewest], run[most]), most)


def _checks(run: _Changing) -> None:
    """The best checkpoint and patience need held-out checks: as many as there are checkpoints."""
    wanted = [key for key in ("train.keep_best", "train.patience") if run[key]]
    if wanted and not run["train.validate_every"]:
        run.set("train.validate_every", run["train.checkpoint_every"], *wanted)


def _held_out(run: _Changing) -> None:
    """Of few rows, sft holds no more than a quarter out."""
    checks, rows = "sft.check_prompts", "dataset.train_rows"
    if run[rows] is not None and run[checks] + run["sft.batch_size"] > run[rows]:
        run.set(checks, min(run[checks], run[rows] // 4), rows)


def _compat(run: _Changing) -> None:
    """What mindrlhf's own preparation cannot do otherwise, whoever chose it."""
    compat = "tokenize.compat"
    if run[compat] == "mindrlhf":
        run.typed.add(compat)
        run.set("tokenize.chat_template", False, compat)
        run.set("tokenize.id_dtype", "int64", compat)


def _cards(run: _Changing) -> None:
    """The layout of a number of cards that does not fit it: other degrees stay where they can."""
    train = run["layout.train"]
    cards, typed = run["cards"], "layout" in run.typed or run.typed_of("layout.train")
    if cards is None or typed or cards == math.prod(train[degree] for degree in DEGREES):
        return
    rest = train["pipeline_stage"] * train["context_parallel"]
    if cards % rest == 0:
        model_parallel = math.gcd(train["model_parallel"], cards // rest)
        run.set("layout.train.model_parallel", model_parallel, "cards")
        run.set("layout.train.data_parallel", cards // rest // model_parallel, "cards")


def _roles(run: _Changing) -> None:
    """The other roles' degrees, where they would occupy other cards than train does, are derived."""
    wanted = math.prod(run["layout.train"][degree] for degree in DEGREES)
    for role in ROLES[1:]:
        degrees = [run[f"layout.{role}.{degree}"] for degree in DEGREES]
        if None not in degrees and math.prod(degrees) != wanted:
            for degree in DEGREES[:2]:
                run.set(f"layout.{role}.{degree}", None, "cards", "layout.train", f"layout.{role}")
