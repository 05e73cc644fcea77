"""The engine × stage table, read from `plan --json`; the table here is written by hand."""

import json
from pathlib import Path

import pytest

from pipeline import cli
from pipeline.config.load import load
from pipeline.engines.program import next_logs
from pipeline.plan.graph import plan
from pipeline.run.run import prepare_plan
from pipeline.store.attempt import attempt
from stages.base.files import file_digest

HOME = Path(__file__).parents[1] / "data" / "mindrlhf_standin"
SKIPPED = {
    "local": set(),
    "hf_safetensors": {"convert", "strategy", "split", "sft"},
    "ms_safetensors": {"strategy", "split", "sft"},
    "ckpt": {"sft"},
}
STARTS_FROM = {"local": "sft", "hf_safetensors": None, "ms_safetensors": "convert", "ckpt": "split"}
CHAIN = {"fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split", "sft", "grpo"}
CHAIN |= {"evaluate", "export", "report"}


def overrides(form):
    if form == "local":
        return []
    vllm = ["engine.use_vllm=0"] if form == "ckpt" else []
    return ["engine=mindrlhf", "layout=dp1_mp2_pp2", f"engine.load_ckpt_format={form}", *vllm]


@pytest.mark.parametrize(
    ("overrides", "noted"), [(["layout.train.recompute=true"], ["layout.train.recompute"]), ([], [])]
)
def test_keys_that_the_embedded_trainer_does_not_read_are_noted(overrides, noted):
    notes = plan(load(overrides), lambda path: "x").notes
    assert [key for note in notes for key in noted if key in note] == noted
    by_mindformers = load([*overrides, "engine.sft=mindformers", "layout=dp1_mp1_pp1"])
    notes = plan(by_mindformers, lambda path: "x").notes
    assert not any("engine=local does not read" in note for note in notes)


@pytest.mark.parametrize(
    ("overrides", "noted"),
    [
        (["train.validate_every=2", "sft.check_prompts=200"], True),
        (["train.validate_every=2", "sft.check_prompts=200", "sft.enabled=false"], False),
        (["train.validate_every=2", "sft.check_prompts=256"], False),
        (["sft.check_prompts=200"], False),
    ],
)
def test_validation_prompts_that_sft_trains_on_are_noted(overrides, noted):
    notes = plan(load(overrides), lambda path: "x").notes
    assert any("sft trains on 56 of these prompts" in note for note in notes) is noted


@pytest.mark.parametrize("form", list(SKIPPED))
def test_plan_shows_the_table(form, tmp_path, capsys):
    assert cli.main(["plan", "--json", f"store={tmp_path}", *overrides(form)]) == 10
    shown = json.loads(capsys.readouterr().out)
    states = {stage["stage"]: stage["state"] for stage in shown["stages"]}
    assert states.keys() == CHAIN
    assert {name for name, state in states.items() if state == "SKIPPED"} == SKIPPED[form]
    assert all(stage["reason"] for stage in shown["stages"] if stage["state"] == "SKIPPED")
    assert shown["engine"] == ("local" if form == "local" else "mindrlhf")


def test_the_plan_shows_the_program_that_a_script_starts(tmp_path, capsys):
    arguments = ["engine=mindrlhf", "layout=dp1_mp2_pp2", "launcher.cards_per_node=2", "launcher=ssh"]
    cli.main(["plan", "--json", f"store={tmp_path}", *arguments])
    shown = json.loads(capsys.readouterr().out)
    (command,) = (stage["command"] for stage in shown["stages"] if stage["stage"] == "grpo")
    assert command[0] == "python" and command[1].endswith("main.py")
    cli.main(["run", "--render", f"store={tmp_path}", *arguments])
    script = Path(capsys.readouterr().out.splitlines()[-2]).read_text()
    assert all(word in script for word in [*command, "msrun", "--worker_num=4", "--local_worker_num=2"])


def test_files_of_a_live_run_are_not_rendered_again(tmp_path, capsys):
    arguments = ["engine=mindrlhf", "layout=dp1_mp2_pp2", f"store={tmp_path}"]
    planned, store = prepare_plan(arguments)
    with attempt(store, planned.spec("grpo").key) as slot:
        assert cli.main(["run", "--render", *arguments]) == 1
        assert f"{slot.work}: a run uses these files now" in capsys.readouterr().err
        assert not list(slot.work.iterdir())
    assert cli.main(["run", "--render", *arguments]) == 0


def test_removed_logs_do_not_stop_the_next_attempt(tmp_path):
    assert next_logs(tmp_path).name == "attempt_1"
    for number in (2, 10):  # the user has removed the others
        (tmp_path / f"attempt_{number}").mkdir()
    assert next_logs(tmp_path).name == "attempt_11"


def test_a_script_that_runs_is_not_changed_when_it_is_rendered_again(tmp_path, capsys):
    arguments = ["run", "--render", "engine=mindrlhf", "layout=dp1_mp2_pp2", f"store={tmp_path}"]
    cli.main(arguments)
    script = Path(capsys.readouterr().out.splitlines()[-1])
    with script.open() as running:
        cli.main([*arguments, "+engine.env.MORE=1"])
        assert script.read_text() != running.read()


@pytest.mark.parametrize("form", list(SKIPPED))
def test_grpo_starts_from_the_tables_stage(form):
    config = load(overrides(form))
    spec = plan(config, file_digest).spec("grpo")
    result = spec.inputs.get("weights")
    assert (result.stage if result else None) == STARTS_FROM[form]
    if form != "local":
        assert config.convert.materialize is (form != "hf_safetensors")
        assert config.convert.format == config.split.format == ("ckpt" if form == "ckpt" else "safetensors")


def test_without_a_checkout_the_newest_contract_is_assumed():
    result = plan(load(["engine=mindrlhf"]), file_digest)
    assert result.config.engine.contract == "e8a8fc1"
    assert any("contract e8a8fc1 is assumed; run refuses" in note for note in result.notes)


@pytest.mark.parametrize(("layers", "stages", "offset"), [(28, 8, 4), (48, 32, 16), (7, 2, 1), (28, 4, 0)])
def test_remaining_layers_are_spread_over_pipeline_stages(layers, stages, offset):
    model = [f"model.num_hidden_layers={layers}", f"layout=dp1_mp1_pp{stages}", "train.prompts_per_step=64"]
    result = load(["engine=mindrlhf", *model]).layout.train.offset
    assert sum(result) == offset and len(result) == (stages if offset else 0)
