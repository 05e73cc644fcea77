"""Single functions of upstream that grpoflow must agree with, run by themselves, in both versions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from pipeline.config.load import load
from stages.base.context import Context
from stages.base.errors import ConfigError
from stages.engines.mindspeed_rl import contract, tokenize, verifiers
from stages.engines.mindspeed_rl.files import train_config
from stages.engines.mindspeed_rl.rehearsal.cpu import environment
from stages.engines.mindspeed_rl.results import NAMES, RATES, SCORES, read_line
from stages.engines.mindspeed_rl.rules import notes
from stages.fetch.records import Row
from stages.fetch.stage import run as fetch
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, job_of, paths, write_index
from tests.upstream.mindspeed_rl.conftest import Window
from tests.upstream.programs import ask

pytestmark = [pytest.mark.upstream, pytest.mark.core]
PROGRAM = Path(__file__).with_name("lines.py")
LONGEST, LENGTHS = 5, (4, 5, 6, 5)
QUESTIONS = ["What is 1 + 1?", "  spaces  and\nlines \n", "{{content}} {{ x }} <think>"]
BASE = ["engine=mindspeed_rl", "model.max_position_embeddings=8192"]
METRICS = SCORES | NAMES | RATES
"""Metrics of both versions, and grpoflow's."""
PEAK = 1e-5
SCHEDULERS = {
    "05a90d7": ("megatron-core_v0.12.1", "core/optimizer_param_scheduler.py"),
    "667a547": ("megatron-core_v0.8.0", "training/optimizer_param_scheduler.py"),
}
"""Version of MindSpeed-RL -> its Megatron and the scheduler's file."""
WARM = {
    f"{iterations} {size}": (f"train.num_iterations={iterations}", f"engine.mini_batch_size={size}")
    for iterations in (1, 2)
    for size in ("null", 16)
}
FALLING = {
    style: ("train.num_iterations=2", f"train.schedule={style}", "train.final_share=0.1")
    for style in ("linear", "cosine")
}


def scheduled(version, *overrides):
    """Return the job of a run of 60 steps."""
    return job_of(
        "model=qwen2_5_7b", "layout=dp1_mp4_pp1", f"engine.contract={version}", "train.steps=60",
        "train.checkpoint_every=60", "train.prompts_per_step=32", "rollout.num_generations=4",
        f"train.learning_rate={PEAK}", *overrides,
    )  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """Answers of one version's functions."""

    window: Window
    fetched: Path
    by_name: dict[str, Any]


@pytest.fixture(scope="module")
def answers(window, checkout, tmp_path_factory):
    root = tmp_path_factory.mktemp("lines")
    contract_of = f"engine.contract={window.version}"
    fetched = root / "fetched"
    fetched.mkdir()
    fetch(Context("fetch", load(BASE).plain(), {}, fetched, root, root / "progress"))
    for column in tokenize.COLUMNS:
        write_index(root / f"data_packed_{column}_document", [[1] * length for length in LENGTHS])
    job = job_of(*SEVEN, contract_of, f"tokenize.max_prompt_length={LONGEST}")
    megatron, file = SCHEDULERS[window.version]
    warm = {name: (*overrides, "train.warmup_steps=6") for name, overrides in WARM.items()}
    request = {
        "scheduler": str(checkout(megatron) / "megatron" / file),
        "rates": {
            name: train_config(scheduled(window.version, *overrides), paths(), resume=False)
            for name, overrides in (warm | FALLING).items()
        },
        "kept": {
            "prefix": str(root / "data"),
            "limit": train_config(job, paths(), resume=False)["rl_config"]["max_prompt_length"],
        },
        "templates": sorted(verifiers.prompt_types(str(window.home))),
        "encode": {"tokenizer": str(fetched), "questions": QUESTIONS},
        "line": {"values": dict.fromkeys(METRICS, 0.5), "iteration": 3, "steps": 500},
    }
    by_name = ask(window.python, PROGRAM, request, window.home, env=environment({}))
    return Answers(window, fetched, by_name)


def test_the_newest_launcher_has_the_defect_that_doctor_reports(window):
    defect = contract.broken_port(str(window.home))
    if window.version == "667a547":
        assert defect is None
    else:
        assert defect is not None and defect[0].startswith(f"{contract.LAUNCHER}:158 ")


def test_prompts_up_to_the_longest_length_are_retained(answers):
    expected = [length for length in LENGTHS if length <= LONGEST]
    assert answers.by_name["kept"] == [dict.fromkeys(sorted(tokenize.COLUMNS), length) for length in expected]


@pytest.mark.parametrize("name", WARM)
def test_the_rate_rises_over_warmup_steps_updates(answers, name):
    iterations, size = name.split()
    rates = answers.by_name["rates"][name]
    assert len(rates) == 60 * int(iterations) * (1 if size == "null" else 2)
    assert rates == pytest.approx([PEAK * min(1, update / 6) for update in range(len(rates))])


@pytest.mark.parametrize("style", FALLING)
def test_a_falling_rate_ends_at_the_value_in_the_note(answers, style):
    job, rates = scheduled(answers.window.version, *FALLING[style]), answers.by_name["rates"][style]
    last = next(update for update, rate in enumerate(rates) if rate <= PEAK * 0.1 * (1 + 1e-9))
    assert last / 2 == pytest.approx(job.decay_steps, abs=0.5)
    assert f"about {job.decay_steps:g} of 60 steps" in " ".join(notes(job))
    assert all(rate >= PEAK * 0.1 * (1 - 1e-9) for rate in rates)


def test_every_template_of_the_checkout_equals_evaluates_prompt(answers, tmp_path):
    config = load([*BASE, f"engine.mindspeed_rl_home={answers.window.home}"])
    known, refused = Tokenizer.from_file(str(answers.fetched / "tokenizer.json")).get_vocab_size(), set()
    rows = [Row(number, question, "#### 4") for number, question in enumerate(QUESTIONS)]
    assert ("qwen3" in answers.by_name["prompts"]) is (answers.window.version == "05a90d7")
    for name, reference in answers.by_name["prompts"].items():
        values = {**config.plain(), "engine": {**config.plain()["engine"], "prompt_type": name}}
        context = Context(
            "tokenize", values, {"fetch": answers.fetched}, tmp_path, tmp_path, tmp_path / "progress"
        )
        try:
            encoder = tokenize.encoder_of(context, config.dataset)
        except ConfigError:
            refused.add(name)
            assert any(max(row) >= known for row in reference), name  # a word that the model never saw
            continue
        encoded, _ = encoder.encode(rows, with_answers=False)
        assert [list(item.prompt) for item in encoded] == reference, name
    assert refused == {"llama3"}


def test_an_iterations_line_is_read(answers):
    row, steps = read_line(answers.by_name["line"], cards=2) or ({}, 0)
    rates = dict.fromkeys(RATES.values(), 2 * 0.5)
    assert steps == 500 and row == {"step": 3, **dict.fromkeys(METRICS.values(), 0.5), **rates}


def test_the_version_has_every_verifier_that_rules_know(window):
    source = (window.home / contract.VERIFIERS).read_text(encoding="utf-8")
    names = verifiers.known_verifiers(job_of(*SEVEN, f"engine.contract={window.version}").engine)
    assert [name for name in names if f'"{name}":' not in source] == []
