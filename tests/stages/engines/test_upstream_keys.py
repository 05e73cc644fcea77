"""engine.upstream: keys that grpoflow renders are refused, and all others reach the rendered file."""

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.load import load
from stages import engines
from stages.base.errors import ConfigError
from stages.base.keys import leaves
from stages.engines.areal import files as areal
from stages.engines.areal.job import Job as ArealJob
from stages.engines.areal.job import Paths as ArealPaths
from stages.engines.upstream_keys import Rendered, Schema, rendered_problems
from stages.engines.verl import files as verl
from stages.engines.verl.job import Job as VerlJob
from stages.engines.verl.job import Paths as VerlPaths
from tests.stages.engines.dependencies import SECTIONS, dependencies

SCHEMA = Schema(
    {"rl.steps": 3, "rl.rate": 0.5, "rl.name": "a", "rl.quick": False, "rl.items": [1], "rl.group": {},
     "rl.unknown_type": None, "rl.whole": 0},
    ("free",),
)  # fmt: skip
REFUSED = {
    "rl.step": [4], "steps": [4], "rl.zebra": [4], "other.zebra": [4], "rl": [4], "rl.steps.more": [4],
    "rl.steps": ["4", True, None], "rl.rate": ["1", True], "rl.name": [1], "rl.quick": [1], "rl.items": ["1"],
}  # fmt: skip
ACCEPTED = {
    "rl.steps": [4], "rl.rate": [1, 1.5], "rl.name": [""], "rl.quick": [True], "rl.items": [[]],
    "rl.unknown_type": ["x"], "rl.unknown_type.below": [1], "rl.group.below": [1], "free.any": ["x"],
    "free.any.below": [1], "rl.whole": [0.001],
}  # fmt: skip


MACHINE = {"engine.device", "engine.ray_address"}
"""Keys that say where a program runs. What is rendered from them alone may be replaced."""


def nested(path, value):
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize(("cases", "is_refused"), [(REFUSED, True), (ACCEPTED, False)])
def test_a_key_must_be_the_programs_and_of_its_type(cases, is_refused):
    for path, values in cases.items():
        for value in values:
            found = list(SCHEMA.problems("engine.upstream", nested(path, value), "the program"))
            assert bool(found) is is_refused, (path, value)
            assert all(problem.path == f"engine.upstream.{path}" and problem.remedy for problem in found)


@pytest.mark.parametrize("path", ["a.b", "a.b.c", "a", "c"])
def test_rendered_keys_are_refused_alone_and_as_a_part_of_groups(path):
    rendered = {"a.b": "train.beta", "c": "=it is a path"}
    (problem,) = rendered_problems("engine.upstream", nested(path, 1), rendered)
    assert problem.remedy == ("leave it out" if path == "c" else "set train.beta")
    assert not list(rendered_problems("engine.upstream", {"a": {"bb": 1}, "d": 2}, rendered))


@dataclass(frozen=True, eq=False)
class Case:
    """One engine, with a configuration that renders many of its keys."""

    name: str
    overrides: tuple[str, ...]
    rendered: Rendered
    values: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Return the values of the rendered files, without `upstream`, of a plain configuration."""
    section: str = "engine"

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Plain configuration."""
        return load(["model.path=/models/qwen", *self.overrides]).plain()

    @functools.cached_property
    def sources(self) -> Mapping[str, set[str]]:
        """Rendered key -> grpoflow's keys on which its value depends."""
        config = copy.deepcopy(self.config)
        for role in ("generate", "reference"):
            config["layout"][role]["pipeline_stage"] = 2  # offset has an effect with several stages only
        sections = (*SECTIONS, self.section)
        found = dependencies(config, sections, lambda changed: dict(leaves(self.values(changed))))
        return {path: keys - MACHINE for path, keys in found.items() if keys - MACHINE}


def _verl(config):
    return verl.configuration(VerlJob.from_config(config), VerlPaths(Path("/run"), Path("/data")))


def _areal(config):
    return areal.configuration(ArealJob.from_config(config), ArealPaths(Path("/run"), Path("/data")))


TOOLS = (
    "rollout.agent=tool", "rollout.tools=[calculator:add]", "rollout.max_turns=4",
    "tokenize.chat_template=true",
)  # fmt: skip
AREAL = ("experiment=areal_7b", "engine.kl_in_reward=0.1")
CASES = (
    Case("verl FSDP2", ("experiment=verl_7b",), verl.RENDERED, _verl),
    Case(
        "verl LoRA",
        ("experiment=verl_7b", "train.lora_rank=8", "rollout.correction=tis"),
        verl.RENDERED,
        _verl,
    ),
    Case(
        "verl on separate cards",
        ("experiment=verl_async_7b", "rollout.correction=none"),
        verl.RENDERED,
        _verl,
    ),
    Case(
        "verl with several turns",
        ("experiment=verl_7b", *TOOLS),
        verl.RENDERED,
        _verl,
    ),
    Case("verl Megatron", ("experiment=verl_7b", "engine.strategy=megatron"), verl.RENDERED, _verl),
    Case("AReaL", (*AREAL, "rollout.correction=mis"), areal.RENDERED, _areal),
)


def covering(rendered, path):
    """Return the entry for a rendered key, or for a group that contains it."""
    return next((key for key in rendered if f"{path}.".startswith(f"{key}.")), None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_upstream_cannot_replace_what_is_rendered_from_a_key(case):
    allowed = {
        # a rule refuses a value that is too small (stages/engines/verl/rules.py); a larger one is allowed
        "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes",
        # as those of actor, which are rendered from engine.device alone; the section of ref is optional
        "ref.attn_impl", "ref.dtype", "ref.disable_dropout",
    }  # fmt: skip
    replaceable = {
        path: keys
        for path, keys in case.sources.items()
        if covering(case.rendered, path) is None and path not in allowed
    }
    assert replaceable == {}


def test_each_refusal_names_a_key_that_the_rendered_value_depends_on():
    actual, tables = defaultdict(set), {id(case.rendered): case.rendered for case in CASES}
    for case in CASES:
        for path, keys in case.sources.items():
            if (entry := covering(case.rendered, path)) is not None:
                actual[id(case.rendered), entry] |= keys
    for table in tables.values():
        for path, key in table.items():
            if not key.startswith("=") and (id(table), path) in actual:
                assert key in actual[id(table), path], path


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        ("+engine.upstream.trainer.save_freq=3", "set train.checkpoint_every"),
        ("+engine.upstream.trainer.logger=[console]", "leave it out"),
        ("+engine.upstream.actor_rollout_ref.actor.optim.lr=1", "set train.learning_rate"),
        ("+engine.upstream.trainer.balance_batch=false", None),
        ("+engine.upstream.unheard.of=3", None),  # nobody can tell without verl
    ],
)
def test_verls_keys_are_checked_without_verl_as_far_as_grpoflow_renders_them(overrides, remedy):
    try:
        config = load(["experiment=verl_7b", "model.path=/models/qwen", overrides])
    except ConfigError as error:
        assert [problem.remedy for problem in error.problems] == [remedy]
        return
    assert remedy is None
    assert any("upstream" in note for note in engines.get("verl").all_notes(config))
    text = verl.text(VerlJob.from_run(config), VerlPaths(Path("/run"), Path("/data")))
    assert overrides.rpartition(".")[2].partition("=")[0] in text
