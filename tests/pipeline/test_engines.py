"""Engines in plans: the engine × stage table of mindrlhf's weight formats, notes, and rendered scripts."""

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from launch.errors import LaunchError
from launch.nodes.start import Start
from pipeline import cli, engines
from pipeline.config.load import load
from pipeline.engines import program
from pipeline.engines.program import next_logs
from pipeline.run.run import prepare_plan
from pipeline.store.attempt import attempt
from stages.base.graph import Program
from stages.catalog import STAGES
from stages.engines.outside import Watcher
from tests.pipeline.plans import planned

SKIPPED = {
    "local": set(),
    "hf_safetensors": {"convert", "strategy", "split", "sft"},
    "ms_safetensors": {"strategy", "split", "sft"},
    "ckpt": {"sft"},
}
STARTS_FROM = {"local": "sft", "hf_safetensors": None, "ms_safetensors": "convert", "ckpt": "split"}
MINDRLHF = ["engine=mindrlhf", "layout=dp1_mp2_pp2"]


@pytest.mark.parametrize("form", list(SKIPPED))
def test_plan_shows_the_table(form, tmp_path, printed):
    vllm = ["engine.use_vllm=0"] if form == "ckpt" else []
    overrides = [] if form == "local" else [*MINDRLHF, f"engine.load_ckpt_format={form}", *vllm]
    shown = printed("plan", f"store={tmp_path}", *overrides, code=10)
    states = {stage["stage"]: stage["state"] for stage in shown["stages"]}
    assert states.keys() == STAGES.keys()
    assert {name for name, state in states.items() if state == "SKIPPED"} == SKIPPED[form]
    assert all(stage["reason"] for stage in shown["stages"] if stage["state"] == "SKIPPED")
    assert shown["engine"] == ("local" if form == "local" else "mindrlhf")
    plan = planned(*overrides)
    config, weights = plan.config, plan.spec("grpo").inputs.get("weights")
    assert (weights.stage if weights else None) == STARTS_FROM[form]
    if form != "local":
        assert config.convert.materialize is (form != "hf_safetensors")
        assert config.convert.format == config.split.format == ("ckpt" if form == "ckpt" else "safetensors")


UNREAD = "layout.train.recompute=true"
OVERLAP = "train.validate_every=2 sft.check_prompts=200"
RATE = "engine=verl train.warmup_steps=2"
SEVEN = "engine=mindrlhf model=qwen2_5_7b layout=dp1_mp4_pp2"
OLDER = f"{SEVEN} engine.contract=0cd087455 layout.train.micro_batch_num=4"
UNCLIPPED = "without ratio and clipping"
RL = "engine=mindspeed_rl model=qwen2_5_7b layout=dp2_mp2_pp2"


@pytest.mark.parametrize(
    ("overrides", "note", "is_given"),
    [
        ("", "", False),
        (UNREAD, "layout.train.recompute", True),
        (f"{UNREAD} engine.sft=mindformers layout=dp1_mp1_pp1", "engine=local does not read", False),
        (OVERLAP, "sft trains on 56 of these prompts", True),
        *((f"{OVERLAP} {more}", "of these prompts", False)
          for more in ("sft.enabled=false", "sft.check_prompts=256", "train.validate_every=0")),
        ("engine=mindrlhf", "contract e8a8fc1 is assumed; run refuses", True),
        (f"{RATE} train.num_iterations=1", "once per step", False),
        (f"{RATE} train.num_iterations=2", "once per step", True),
        (f"{SEVEN} engine.use_vllm=0", "completions of a prompt only 2 differ", True),
        (f"{SEVEN} engine.use_vllm=0 layout=dp8_mp1_pp1", "completions of a prompt", False),
        (f"{SEVEN} layout=dp2_mp4_pp1 layout.train.micro_batch_num=4", "micro_batch_num=4", True),
        (f"{SEVEN} layout.train.micro_batch_num=4", "micro_batch_num=4", False),
        (f"{SEVEN} model.variant=base", "is the padding id", True),
        (f"{SEVEN} model.variant=instruct", "is the padding id", False),
        (f"{SEVEN} rollout.temperature=0.7", "rollout.temperature=0.7", True),
        (f"{SEVEN} rollout.temperature=1.0", "rollout.temperature", False),
        (OLDER, UNCLIPPED, True),
        (f"{OLDER} train.num_iterations=2", UNCLIPPED, False),
        (f"{OLDER} train.prompts_per_step=2 rollout.num_generations=2", UNCLIPPED, False),
        (f"{SEVEN} layout.train.micro_batch_num=4", UNCLIPPED, False),
        (f"{RL} layout.train.micro_batch_num=2", "micro_batch_num", False),
        (f"{RL} layout.train.micro_batch_num=8", "layout.train.micro_batch_num=8 changes nothing", True),
    ],
)  # fmt: skip
def test_notes_of_a_plan(overrides, note, is_given):
    assert any(note in text for text in engines.notes(load(overrides.split()))) is is_given


@pytest.mark.parametrize(
    ("overrides", "checkout"), [(SEVEN, "engine.mindrlhf_home"), (RL, "engine.mindspeed_rl_home")]
)
def test_an_engine_with_checkouts_needs_no_known_versions(overrides, checkout):
    config = load(overrides.split())
    unknown = dataclasses.replace(engines.get(config.engine.name), known={})
    assert next(unknown.all_notes(config)) == f"{checkout} is not set: run refuses without it"
    assert unknown.works_with(config) is None


class Unreadable(Watcher):
    """Fails on the last lines of a run, such as on a full disk."""

    def poll(self):
        raise OSError("no space left")


def test_an_error_of_the_run_is_not_hidden_by_one_of_its_last_lines(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise LaunchError("exit code 7")

    module = ModuleType("failing")
    module.watch = lambda config, logs, work, report: Unreadable(logs / "start.log", report)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(program.nodes, "run", fail)
    values = {"program": ("true",), "workers": 0, "python": None, "env": {}, "python_path": ()}
    start = Start(**values, env_scripts=(), container=(), directory="")
    (tmp_path / "start.json").write_text(json.dumps({"start": dataclasses.asdict(start)}))
    stage = SimpleNamespace(program=Program("failing", module.__name__, 1))
    spec = SimpleNamespace(stage=stage, config={"engine": {"silence_timeout_s": None}})
    slot = SimpleNamespace(work=tmp_path, logs=tmp_path, job="job")
    with pytest.raises(LaunchError, match="exit code 7"):
        program.run(spec, slot, load([]).launcher, lambda entry: None, lambda: None)


@pytest.mark.parametrize(("layers", "stages", "offset"), [(28, 8, 4), (48, 32, 16), (28, 4, 0)])
def test_remaining_layers_are_spread_over_pipeline_stages(layers, stages, offset):
    model = [f"model.num_hidden_layers={layers}", f"layout=dp1_mp1_pp{stages}", "train.prompts_per_step=64"]
    result = load(["engine=mindrlhf", *model]).layout.train.offset
    assert sum(result) == offset and len(result) == (stages if offset else 0)


def render(tmp_path, capsys, *more):
    """Return the script of the first node."""
    assert cli.main(["run", "--render", f"store={tmp_path}", *MINDRLHF, *more]) == 0
    return next(Path(line) for line in capsys.readouterr().out.splitlines() if line.endswith("node_0.sh"))


def test_a_rendered_script_starts_the_program_of_the_plan_and_can_be_rendered_while_it_runs(
    tmp_path, capsys, printed
):
    nodes = ["launcher.cards_per_node=2", "launcher=ssh"]
    shown = printed("plan", f"store={tmp_path}", *MINDRLHF, *nodes, code=10)
    (command,) = (stage["command"] for stage in shown["stages"] if stage["stage"] == "grpo")
    assert command[0] == "python" and command[1].endswith("main.py")
    script = render(tmp_path, capsys, *nodes)
    text = script.read_text()
    assert all(word in text for word in [*command, "msrun", "--worker_num=4", "--local_worker_num=2"])
    with script.open() as running:
        assert render(tmp_path, capsys, *nodes, "+engine.env.MORE=1") == script
        assert script.read_text() != running.read() == text


def test_files_of_a_live_run_are_not_rendered_again(tmp_path, capsys):
    plan, store = prepare_plan([*MINDRLHF, f"store={tmp_path}"])
    with attempt(store, plan.spec("grpo").key) as slot:
        assert cli.main(["run", "--render", *MINDRLHF, f"store={tmp_path}"]) == 1
        assert not list(slot.work.iterdir())
    render(tmp_path, capsys)


def test_removed_logs_do_not_stop_the_next_attempt(tmp_path):
    assert next_logs(tmp_path).name == "attempt_1"
    for number in (2, 10):  # the user has removed the others
        (tmp_path / f"attempt_{number}").mkdir()
    assert next_logs(tmp_path).name == "attempt_11"
