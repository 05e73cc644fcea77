"""`grpoflow config`: printed, explained, saved, and typed again."""

import json
import subprocess
import sys
from typing import Annotated

import pytest
import yaml
from annotated_types import Ge, Le
from hydra.core.override_parser.overrides_parser import OverridesParser

from pipeline.cli import main
from pipeline.config import file
from pipeline.config.compose import flat
from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.plan import keys
from pipeline.plan.origin import origins
from stages.base.identity import field_types

SEVEN = ["experiment=mindrlhf_7b", "dataset=arith", "train.steps=3", "+engine.env.WORLD_SIZE='8'"]


def told(capsys, *arguments):
    assert main(["config", *arguments]) == 0
    return capsys.readouterr().out


def test_it_is_printed_as_the_run_has_it(capsys):
    wanted = json.loads(json.dumps(load(SEVEN).plain()))
    printed = yaml.safe_load(told(capsys, *SEVEN))
    assert printed.pop("defaults") == [{"experiment": "mindrlhf_7b"}, {"dataset": "arith"}]
    assert printed == wanted
    assert json.loads(told(capsys, "--json", *SEVEN)) == wanted


def test_every_value_has_an_origin():
    overrides = ["layout=dp2_mp1_pp1", "train.steps=3", "sft_data={kind: conversations}"]
    values = load(overrides).plain()
    found = origins(overrides, None, values)
    assert found.keys() == flat(values).keys()
    assert found["train.steps"] == "typed: train.steps=3"
    assert found["sft_data.kind"] == "typed: sft_data={kind: conversations}" or found["sft_data.kind"]
    assert found["train.warmup_steps"] == "conf/train/grpo.yaml: ${min:5,${train.steps}}"
    assert found["layout.train.data_parallel"] == "the name layout/dp2_mp1_pp1"
    assert found["layout.generate.data_parallel"] == found["cards"] == "derived"
    assert found["sft.max_tokens"] == "conf/sft/default.yaml: ${rollout.max_tokens}"
    assert found["model.hidden_size"] == "conf/model/tiny.yaml"


def test_what_an_experiment_sets_comes_from_its_file_and_groups_may_be_ones_own(tmp_path):
    overrides = ["experiment=mindrlhf_7b", "dataset=arith"]
    found = origins(overrides, None, load(overrides).plain())
    assert "conf/experiment/mindrlhf_7b.yaml" in set(found.values())
    mine = tmp_path / "train" / "mine.yaml"
    mine.parent.mkdir()
    mine.write_text("defaults: [grpo]\nbeta: 0.5\n")
    found = origins(["train=mine"], tmp_path, load(["train=mine"], tmp_path).plain())
    assert (found["train.beta"], found["train.steps"]) == (str(mine), "conf/train/grpo.yaml")


@pytest.mark.parametrize("overrides", [[], SEVEN, ["train.keep_best=true", "layout=dp1_mp1_pp1"]])
def test_the_printed_configuration_can_be_read_again(tmp_path, overrides, capsys):
    saved = tmp_path / "saved.yaml"
    saved.write_text(told(capsys, *overrides))
    read = file.read(saved, [], None)
    assert load(read).plain() == load(overrides).plain()
    assert len(read) < 25  # the choices and the values that differ from them


def test_values_that_were_derived_when_a_configuration_was_printed_are_derived_again(tmp_path, capsys):
    saved = tmp_path / "saved.yaml"
    saved.write_text(told(capsys, "layout=dp2_mp1_pp1"))
    typed = ["layout=dp1_mp1_pp1"]
    assert load([*file.read(saved, typed, None), *typed]).cards == 1


def test_what_is_typed_wins_over_the_file_with_all_that_it_implies(tmp_path):
    saved = tmp_path / "mine.yaml"
    saved.write_text(
        "defaults: [{layout: dp2_mp1_pp1}]\ntrain: {beta: 0.5, steps: 7}\nmodel: {num_hidden_layers: 4}\n"
    )
    typed = ["train.beta=0.25", "layout=dp1_mp1_pp1", "model=qwen2_5_0_5b"]
    config = load([*file.read(saved, typed, None), *typed])
    assert (config.train.beta, config.train.steps, config.train.warmup_steps) == (0.25, 7, 5)
    assert (config.layout.name, config.model.num_hidden_layers) == ("dp1_mp1_pp1", 24)


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "defaults: tiny\n", "defaults: [{a: 1, b: 2}]\n", ""])
def test_another_form_is_refused(tmp_path, text, capsys):
    (tmp_path / "f").write_text(text)
    assert main(["plan", "--config", str(tmp_path / "f")]) == 2
    assert main(["plan", "--config", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("error: --config=") == 2


@pytest.mark.parametrize(
    "value",
    ["", "a b", "it's", "\\boxed{}", "a\\", "a\\'b", "\n", "ü,[=:]", "null", "7", None, True, 0.5, 1e-8,
     '"x"', [], ["a'b", 1], {"a": {"b": ["c"]}}],
)  # fmt: skip
def test_a_value_survives_hydras_grammar(value):
    parsed = OverridesParser.create().parse_override(f"a.b={file.word(value)}").value()
    assert json.loads(json.dumps(parsed)) == value


def test_a_key_is_explained_by_its_field_and_the_graph(capsys):
    beta = json.loads(told(capsys, "--json", "--explain", "train.beta", "train.beta=0.5"))
    assert "KL divergence" in beta["meaning"] and beta["type"] == "number, at least 0"
    assert (beta["value"], beta["default"]) == (0.5, 0.01)
    assert beta["read_by"] == ["grpo", "export"]
    assert beta["reruns"] == ["grpo", "evaluate", "export", "report"]
    config = load([])
    assert keys.explain("train.warmup_steps", config).rules == (
        "train.warmup_steps (ours: stages/grpo/optimizer.py)",
    )
    assert keys.explain("fetch.wait_s", config).reruns == ()
    assert keys.explain("fetch.wait_s", config).unit == "seconds"
    assert keys.explain("seed", config).read_by[0] == "fetch"
    assert keys.describe(Annotated[int, Ge(1), Le(8)] | None) == "whole number, at least 1, at most 8 or null"
    assert (
        keys.explain("layout.train.model_parallel", config).rules[0].startswith("run.attention_heads (mindf")
    )
    assert keys.explain("train.loss_type", config).type.startswith("one of ")
    text = told(capsys, "--explain", "train")
    assert "train.beta" in text and "GRPO" in text


def test_every_key_can_be_explained_and_has_a_type():
    for overrides in ([], SEVEN, ["experiment=mindspeed_rl_7b"]):
        config = load(overrides)
        for path in flat(config.plain()):
            if not path.startswith(("engine.env.", "launcher.env.")):
                key = keys.explain(path, config)
                assert key.fields if key.type == "section" else key.type, path


def test_only_sections_and_what_says_itself_have_no_text():
    untold = [name for name in field_types(Config) if not keys.explain(name, load([])).meaning]
    assert untold == []


def test_an_unknown_key_names_the_nearest(capsys):
    for wrong, near in (("train.bta", "train.beta"), ("trian", "train")):
        assert main(["config", "--explain", wrong]) == 2
        assert f"--explain={wrong}: unknown key; did you mean {near}?" in capsys.readouterr().err


def test_hydras_own_options_show_what_hydra_shows():
    for option, wanted in ((["--cfg", "job"], "beta: 0.5"), (["--info", "defaults"], "model/tiny")):
        shown = subprocess.run(
            [sys.executable, "-m", "pipeline", *option, "train.beta=0.5"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert shown.returncode == 0 and wanted in shown.stdout, shown.stderr
