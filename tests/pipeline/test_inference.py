"""evaluate.program: what follows from the engine's environment, what is refused, and estimated durations."""

import os

import pytest

from pipeline.config import inference
from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.fingerprint import cached_digest
from pipeline.plan import estimate, program_keys
from pipeline.plan.graph import plan
from pipeline.store.store import Store
from stages.models.cost import Generation, generation_on_cards, generation_on_cpu
from tests.launch.launchers import executable
from tests.stages.inference.test_answer import FAKE

VERL = ("engine=verl", "model=qwen2_5_7b", "model.path=/m", "layout=dp16_mp1_pp1", "launcher=ssh")
LOCAL = ("engine=local", "evaluate.program=vllm")
NAMED = (*LOCAL, "evaluate.python=/p")
CARDS = (*VERL, "evaluate.program=vllm")
MOST, SHARED = "evaluate.layout.replicas", "evaluate.layout.tensor_parallel"


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Return a function: True if the interpreter that it makes has vLLM; it counts how often it is asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    inference._answer.cache_clear()
    program_keys._answer.cache_clear()

    def make(has_vllm):
        script = f"#!/bin/sh\necho asked >>{tmp_path}/asked; echo {has_vllm}\n"
        return executable(tmp_path / str(has_vllm) / "bin" / "python", script)

    return make


@pytest.mark.parametrize(("has_vllm", "program"), [(True, "vllm"), (False, "local")])
def test_an_outside_engine_answers_by_vllm_if_its_environment_has_it(python, tmp_path, has_vllm, program):
    interpreter = f"engine.python={python(has_vllm)}"
    for _ in range(2):
        inference._answer.cache_clear()  # as another process
        assert load([*VERL, interpreter]).evaluate.program == program
    assert (tmp_path / "asked").read_text().split() == ["asked"]
    assert load([*VERL, interpreter, "engine.container=[docker,exec,c]"]).evaluate.program == "local"


def test_without_an_interpreter_the_embedded_decoder_answers():
    assert load(VERL).evaluate.program == load(["engine=local"]).evaluate.program == "local"


@pytest.mark.parametrize(
    ("overrides", "layout"),
    [
        ((), (1, 16)), (("evaluate.layout.tensor_parallel=4",), (4, 4)), (("launcher=local",), (1, 8)),
        (("evaluate.layout.replicas=3",), (1, 3)), (("engine.device=cpu",), (1, 1)),
    ],
)  # fmt: skip
def test_the_layout_follows_from_the_generate_role(overrides, layout):
    made = load([*VERL, "evaluate.program=vllm", *overrides]).evaluate.layout
    assert (made.tensor_parallel, made.replicas) == layout


@pytest.mark.parametrize(
    ("overrides", "key", "remedy"),
    [
        (("engine=local", "evaluate.dtype=float16"), "evaluate.dtype", "evaluate.program=vllm"),
        (LOCAL, "evaluate.python", "name one"),
        ((*NAMED, "+evaluate.upstream.seed=1"), "evaluate.upstream.seed", "leave it out"),
        ((*NAMED, "evaluate.max_model_len=51"), "evaluate.max_model_len", "use 52"),
        ((*NAMED, f"{SHARED}=3"), SHARED, "use 2"),
        ((*NAMED, f"{MOST}=9"), "evaluate.layout", "use fewer replicas"),
        ((*CARDS, f"{MOST}=17"), "evaluate.layout", "use fewer replicas"),
        ((*CARDS, f"{SHARED}=4", "launcher.cards_per_node=2"), SHARED, "use at most 2"),
    ],
)  # fmt: skip
def test_refused(overrides, key, remedy):
    with pytest.raises(ConfigError) as error:
        load(overrides)
    found = {problem.path: problem.remedy for problem in error.value.problems}
    assert remedy in found[key]


def test_an_interpreter_without_vllm_is_refused_before_anything_runs(python):
    with pytest.raises(ConfigError, match=r"evaluate\.python.*has no package vllm"):
        load([*LOCAL, f"evaluate.python={python(False)}"])


def test_unknown_arguments_of_vllm_are_refused(tmp_path, monkeypatch, python):
    real = executable(
        tmp_path / "bin" / "python", f'#!/bin/sh\nPYTHONPATH={FAKE} exec {os.sys.executable} "$@"\n'
    )
    for added, remedies in (
        ("max_num_batched_tokens=8192", []), ("enforce_eager=true", []),
        ("enforce_eager=1", ["give a value of this type"]),
        ("enforce_eagre=true", ["did you mean enforce_eager?"]),
    ):  # fmt: skip
        config = load([*LOCAL, f"evaluate.python={real}", f"+evaluate.upstream.{added}"])
        assert [problem.remedy for problem in program_keys.inference_problems(config)] == remedies
        assert list(program_keys.inference_notes(config)) == []


def test_only_evaluate_depends_on_the_settings_of_vllm():
    base = ["engine=local", "evaluate.python=/p", "evaluate.program=vllm"]

    def keys(*overrides):
        specs = plan(load([*base, *overrides]), cached_digest).specs
        return {spec.name: spec.key.fingerprint for spec in specs}

    one = keys()
    for changed in ("evaluate.layout.replicas=2", "evaluate.env.A=b", "evaluate.gpu_memory_utilization=0.5"):
        assert keys(changed if "env" not in changed else f"+{changed}") == one
    other = keys("evaluate.dtype=float32")
    assert {name for name in one if one[name] != other[name]} == {"evaluate", "export", "report"}


WORK = Generation(prompts=10, prompt_tokens=100, completions=30, tokens=200, batch=10)


def test_cost_of_generating():
    model = load(["engine=local", "model=qwen2_5_7b", "model.path=/m"]).model
    tokens = 10 * 100 + 30 * 200
    assert generation_on_cpu(model, WORK, 2) == pytest.approx(2 * model.num_parameters * tokens / (2 * 25e9))
    one, four = (generation_on_cards(model, WORK, 1, replicas) for replicas in (1, 3))
    assert one / 3 == pytest.approx(four)
    step = model.num_parameters * 2 / 0.8e12
    assert one == pytest.approx(3 * 200 * step + 10 * 100 * 2 * model.num_parameters / 125e12)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("engine=local",), None),
        (("engine=local", "model=qwen2_5_7b", "model.path=/m"), "evaluate.program=vllm"),
        ((*VERL, "rollout.max_tokens=512"), "evaluate.program=vllm"),
        ((*VERL, "model=qwen3_30b_a3b"), "does not compute Qwen3-MoE"),
        ((*VERL, "evaluate.program=vllm", "rollout.max_tokens=512"), None),
        (
            (*VERL, "evaluate.program=vllm", "rollout.max_tokens=4096", "evaluate.num_prompts=100000",
             "evaluate.layout.replicas=1"),
            "use more evaluate.layout.replicas",
        ),
    ],
)  # fmt: skip
def test_plan_warns_of_a_long_evaluation_with_the_remedy(overrides, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    planned = plan(load([*overrides, f"store={tmp_path}"]), lambda path: "x")
    found = list(estimate.warnings(planned, Store(tmp_path)))
    assert (expected is None and found == []) or expected in found[0]


def test_plan_notes_how_long_training_takes(tmp_path):
    planned = plan(load([*VERL, "rollout.max_tokens=512", "train.steps=1000"]), lambda path: "x")
    notes = list(estimate.notes(planned, Store(tmp_path)))
    assert any(note.startswith("grpo: estimated to take about") for note in notes) and "nominal" in notes[-1]
