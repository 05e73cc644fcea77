"""Every rule has a breaking and a similar passing configuration; the rules of machines come last."""

import functools
import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from pipeline.plan import checks, machines
from stages import engines
from stages.base.errors import ConfigError
from stages.engines.declaration import Declared
from stages.engines.tables import PLAIN
from tests.launch.launchers import several
from tests.pipeline.plans import MINDSPEED_RL

SEVEN = ("engine=mindrlhf", "model.path=/models/qwen", "model=qwen2_5_7b", "layout=dp1_mp4_pp2")
UNSUPPORTED = {
    "loss_type": "dapo", "scale_advantages": "false", "importance_sampling_level": "sequence",
    "use_bias_correction_kl": "true", "mask_truncated_completions": "true", "resample_rounds": "1",
    "validate_every": "1", "lora_rank": "4", "max_kl": "1.0", "resume_from": "/x",
    "loggers": "[wandb]",
}  # fmt: skip
"""A value of each key of PLAIN that no outside engine supports."""


def read(group: dict) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Return the rule's id, the breaking and the passing overrides of each case of a base configuration."""
    lines = group["cases"].splitlines()
    if "plain" in group:
        keys = group.get("only") or [key for key in PLAIN if key not in group.get("without", ())]
        lines += [f"{group['plain']}.{key}  train.{key}={UNSUPPORTED[key]}" for key in keys]
    result = []
    for line in lines:
        rule, breaking, *passing = (part.strip() for part in re.split(r"\s\s+(?:->\s+)?", line))
        overrides = (breaking.split(), " ".join(passing).split())
        result.append((rule, *((*group["base"], *more) for more in overrides)))
    return result


DATA = Path(__file__).parents[1] / "data"
TABLE = yaml.safe_load((DATA / "rule_cases.yaml").read_text(encoding="utf-8"))
CASES = [case for group in TABLE for case in read(group)]


def rows():
    """Return every rule by its id."""
    declared = [engine for name in engines.MODULES if isinstance(engine := engines.get(name), Declared)]
    engine_rules = [engine.declared.rules for engine in declared]
    return {row.id: row for table in engine_rules for row in table.rows()}


@functools.cache
def problems(overrides):
    try:
        load(overrides)
    except ConfigError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    ("row", "breaking", "passing"), CASES, ids=[" ".join(case[1][-2:]) for case in CASES]
)
def test_each_rule_has_a_breaking_and_a_passing_configuration(row, breaking, passing):
    matching = [problem for problem in problems(breaking) if problem.id == row]
    assert matching and all(problem.remedy for problem in matching), problems(breaking)
    assert all(problem.source == rows()[row].source for problem in matching)
    assert problems(passing) == ()


def test_the_number_of_prompts_in_a_remedy_resolves_the_problem():
    checked = 0
    for row, breaking, _ in CASES:
        for problem in problems(breaking):
            number = re.fullmatch(r"use (\d+)", problem.remedy)
            if problem.id == row and row.endswith((".updates", ".reference_batches")) and number:
                assert problems((*breaking, f"train.prompts_per_step={number[1]}")) == (), breaking
                checked += 1
    assert checked == 5


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        ("reward.functions=[maths] reward.weights=[1.0]", "pip install math-verify"),
        ("reward=cosine reward.length.correct_by=maths", "pip install math-verify"),
        ("train.loggers=[wandb]", "pip install 'grpoflow"),
    ],
)
def test_a_missing_package_is_named(overrides, remedy, monkeypatch):
    for installed in (object(), None):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, installed=installed: installed)
        problems.cache_clear()
        found = [problem.remedy for problem in problems(tuple(overrides.split()))]
        assert len(found) == (installed is None)
        assert all(text.startswith(remedy) for text in found)
    problems.cache_clear()


def test_a_tokenizer_without_endoftext_is_refused(tmp_path):
    added = {"added_tokens_decoder": {"2": {"content": "</s>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(added))
    matching = problems((*SEVEN, f"model.path={tmp_path}"))
    assert [problem.id for problem in matching] == ["mindrlhf_generation.endoftext"]


def test_every_rule_has_a_case_a_source_and_a_sentence():
    tested = {*(case[0] for case in CASES), "mindrlhf_generation.endoftext"}
    own = {row for row in rows() if not row.startswith(("split.", "engine_layouts."))}
    assert own <= tested
    assert [row.id for row in rows().values() if not (row.source and row.text)] == []


NODES = ("engine=mindrlhf", "layout=dp1_mp2_pp2", "launcher.cards_per_node=2")
ONE = (*NODES, "launcher.cards_per_node=4")
SSH = (*NODES, "launcher=ssh")


@pytest.fixture
def two(tmp_path):
    """Return overrides for two machines, with a mock of ssh that runs commands on this one."""
    launcher = several(tmp_path, 2)
    named = (f"launcher.hosts=[{','.join(launcher.hosts)}]", f"launcher.ssh=[{launcher.ssh[0]}]")
    return (*SSH, *named, f"store={tmp_path / 'store'}")


def machine_problems(*overrides):
    config = load(overrides)
    engine = engines.get(config.engine.name)
    return list(machines.problems(config, engine, config.cards))


def test_each_rule_of_machines_has_a_breaking_and_a_passing_configuration(two):
    ray = (*MINDSPEED_RL, "launcher.cards_per_node=4")
    existing = "engine.ray_address='10.0.0.1:6379'"  # is reached from one machine
    assert machine_problems(*ONE) == machine_problems(*two) == machine_problems(*ray, existing) == []
    for breaking, path, message in (
        ((*NODES, "launcher=local"), "cards", "needs 2 nodes"),
        (ray, "cards", "needs 2 nodes"),
        ((*ONE, "launcher.hosts=[here]"), "launcher.hosts", "is for launcher=ssh"),
        ((*ONE, "launcher.sbatch=['--qos=x']"), "launcher.sbatch", "is for launcher=slurm"),
        ((*ONE, "engine.container=[no-such-program,x]"), "engine.container", "is no program"),
        ((*two, "launcher.hosts=[here,here]"), "launcher.hosts[1]", "is named twice"),
        ((*two, "launcher.hosts=[me@localhost,there]"), "launcher.hosts[0]", "is no address by which"),
        ((*SSH, "launcher.hosts=[here]"), "launcher.hosts", "must name 2 machines"),
        ((*two, "engine.container=[docker,exec,x]"), "engine.container", "is for launcher=local"),
        ((*two, "launcher.ssh=[/no/ssh]"), "launcher.hosts", "must work"),
        ((*two, "engine.python=/no/python"), "launcher.hosts", "/no/python"),
    ):
        result = machine_problems(*breaking)
        assert any(problem.path == path and message in problem.rule for problem in result), (breaking, result)
        assert all(problem.remedy for problem in result), result


def test_a_machine_without_slurm_is_refused(monkeypatch):
    for found, paths in (("/usr/bin/sbatch", []), (None, ["launcher"])):
        monkeypatch.setattr(machines.shutil, "which", lambda name, found=found: found)
        assert [problem.path for problem in machine_problems(*NODES, "launcher=slurm")] == paths


def test_mindspeed_rl_needs_checkout_converter_and_machines(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)  # of Slurm
    standin = DATA / "mindspeed_rl_standin"
    homes = (f"engine.mindspeed_rl_home={standin / 'head'}", f"engine.mindspeed_llm_home={standin / 'llm'}")
    apart = ("engine.use_integrated_worker=false", "train.prompts_per_step=64", "launcher.cards_per_node=8")
    inside = ("launcher=slurm", "engine.container=[docker,exec,rl]")  # nothing would run in the container
    for overrides, missing in (
        ((), ["engine.mindspeed_rl_home", "engine.mindspeed_llm_home"]),
        (homes, []),
        ((f"engine.mindspeed_rl_home={standin / 'window'}",), []),
        ((*homes, *apart), ["cards"]),
        ((*homes, *inside), ["engine.container"]),
    ):
        needs = checks.needs(load([*MINDSPEED_RL, *overrides]))
        assert [problem.path for problem in needs] == missing, overrides
