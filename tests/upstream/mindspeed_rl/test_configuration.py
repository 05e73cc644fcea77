"""Upstream's validation accepts every configuration that the engine accepts: all sizes, cards and layouts.

Hydra's composition, parse_training_config with validate_rl_args, and Megatron's validate_args inside
initialize_megatron, as stages/mindspeed_rl/rehearsal/validate.py calls them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import load
from pipeline.engines import mindspeed_rl
from pipeline.errors import ConfigError
from stages.mindspeed_rl.job import Job, Places
from stages.mindspeed_rl.rehearsal.validation import validate
from stages.mindspeed_rl.train import places_of
from stages.mindspeed_rl.train_yaml import dump, train_config
from tests.upstream.mindspeed_rl.conftest import Window

pytestmark = pytest.mark.upstream
SIZES = {"0_5b": 24, "1_5b": 28, "3b": 36, "7b": 28, "14b": 48, "32b": 64, "72b": 80}  # layers
DEGREES, CARDS = (1, 2, 4, 8), 64
VARIANTS = (  # one for each layout, in turn
    (),
    ("layout.train.recompute=true", "engine.micro_batch_size=1"),
    ("layout.train.select_recompute=true", "layout.train.enable_parallel_optimizer=false"),
    ("engine.use_remove_padding=true", "layout.train.opt_offload=true"),
    ("engine.use_integrated_worker=false", "train.schedule=cosine", "train.warmup_steps=10"),
    ("layout.train.use_seq_parallel=false", "engine.mini_batch_size=96", "train.max_grad_norm=null"),
)


def layouts(size: str) -> Iterator[str]:
    for data, tensor, pipeline, context in itertools.product((1, 3, 8), DEGREES, DEGREES, (1, 2)):
        if data * tensor * pipeline * context <= CARDS and pipeline <= SIZES[size]:
            yield f"dp{data}_mp{tensor}_pp{pipeline}" + (f"_cp{context}" if context > 1 else "")


def accepted(version: str, overrides: list[str]) -> Job | None:
    """The job, unless the engine refuses it."""
    fixed = ["engine=mindspeed_rl", "model.path=/models/qwen", f"engine.contract={version}"]
    cards = ["train.prompts_per_step=384", f"launcher.cards_per_node={CARDS}"]
    try:
        return mindspeed_rl.job(load([*fixed, *cards, *overrides]))
    except ConfigError:
        return None


def write(directory: Path, job: Job, tokenizer: Path, resume: bool) -> dict[str, Any]:
    root = places_of(directory)
    places = Places(root.root, tokenizer, root.weights)
    values = train_config(job, places, resume)
    directory.mkdir(parents=True)
    (directory / "train.yaml").write_text(dump(values))
    return values


def expected(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What Megatron must have made of each role, counted from the file alone."""
    network = values["model"][values["megatron_training"]["model"]]
    found = {}
    for role in ("actor", "ref"):
        if f"{role}_config" not in values:
            continue
        cut, resource = values[f"{role}_config"], "actor" if role == "actor" else "reference"
        cards = values["rl_config"][f"{resource}_resource"]["num_npus"]
        parts = cut["tensor_model_parallel_size"], cut["pipeline_model_parallel_size"]
        context = cut.get("context_parallel_size", 1)
        found[role] = {
            "world_size": cards,
            "data_parallel_size": cards // (parts[0] * parts[1] * context),
            "num_layers": network["num_layers"],
            "seq_length": values["megatron_training"]["seq_length"],
            "tensor_model_parallel_size": parts[0],
            "pipeline_model_parallel_size": parts[1],
            "context_parallel_size": context,
            "padded_vocab_size": network["padded_vocab_size"],
            "num_query_groups": network["num_query_groups"],
            "sequence_parallel": values["megatron_training"]["sequence_parallel"],
            "use_distributed_optimizer": values["megatron_training"]["use_distributed_optimizer"],
            "recompute_granularity": values["megatron_training"].get("recompute_granularity"),
        }
    return found


def check(window: Window, recipes: list[list[str]], directory: Path) -> int:
    """How many the engine accepts; every one of them must be accepted by upstream, too."""
    tokenizer = directory / "tokenizer"
    tokenizer.mkdir()
    given = {}
    for number, recipe in enumerate(recipes):
        if job := accepted(window.version, recipe):
            place = directory / str(number)
            given[str(place)] = (recipe, write(place, job, tokenizer, resume=number % 2 == 1))
    told = validate(window.python, window.home, [Path(place) for place in given], nodes=1)
    for place, (recipe, values) in given.items():
        assert told[place].get("error") is None, f"{recipe}\n{told[place]['error']}"
        roles = told[place]["roles"]
        assert {role: roles[role] for role in expected(values)} == expected(values), recipe
    return len(given)


@pytest.mark.core
def test_it_accepts_its_own_size(window: Window, tmp_path: Path) -> None:
    recipe = ["model=qwen2_5_7b", "layout=dp4_mp2_pp2", "layout.generate.model_parallel=1"]
    assert check(window, [recipe], tmp_path) == 1


@pytest.mark.core
def test_what_it_refuses_is_told_in_its_own_words(window: Window, tmp_path: Path) -> None:
    job = accepted(window.version, ["model=qwen2_5_7b", "layout=dp4_mp2_pp2"])
    assert job is not None
    for name, section, key, value in (
        ("key", "rl_config", "no_such_key", 1),
        ("cards", "actor_config", "tensor_model_parallel_size", 3),
        ("heads", "actor_config", "pipeline_model_parallel_size", 3),
    ):
        values = write(tmp_path / name, job, tmp_path, resume=False)
        values[section][key] = value
        (tmp_path / name / "train.yaml").write_text(dump(values))
    told = validate(window.python, window.home, [tmp_path / name for name in ("key", "cards", "heads")], 1)
    assert "no_such_key" in told[str(tmp_path / "key")]["error"]
    for name in ("cards", "heads"):
        assert "must be divisible by" in told[str(tmp_path / name)]["error"]


@pytest.mark.timeout(1500)
def test_it_accepts_every_size_and_layout_that_the_engine_accepts(window: Window, tmp_path: Path) -> None:
    recipes = []
    for size in SIZES:
        for number, layout in enumerate(layouts(size)):
            variant = VARIANTS[(number + len(size)) % len(VARIANTS)]
            recipes.append([f"model=qwen2_5_{size}", f"layout={layout}", *variant])
    assert check(window, recipes, tmp_path) > 100
