"""`grpoflow config`: the printed configuration, and the explanation of a key."""

import json
import subprocess
import sys

import yaml

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.plan import keys

EXPERIMENT = ["experiment=mindrlhf_7b", "dataset=arith", "train.steps=3", "+engine.env.WORLD_SIZE='8'"]


def output(capsys, *arguments):
    assert main(["config", *arguments]) == 0
    return capsys.readouterr().out


def test_the_printed_configuration_is_the_runs(capsys):
    expected = json.loads(json.dumps(load(EXPERIMENT).plain()))
    printed = yaml.safe_load(output(capsys, *EXPERIMENT))
    assert printed.pop("defaults") == [{"experiment": "mindrlhf_7b"}, {"dataset": "arith"}]
    assert printed == expected
    assert json.loads(output(capsys, "--json", *EXPERIMENT)) == expected


def test_a_key_is_explained_by_its_field_the_graph_and_the_rules(capsys):
    beta = json.loads(output(capsys, "--json", "--explain", "train.beta", "train.beta=0.5"))
    assert beta["meaning"] and beta["type"] == "number, at least 0"
    assert (beta["value"], beta["default"]) == (0.5, 0.01)
    assert beta["read_by"] == ["grpo", "export"]
    assert beta["reruns"] == ["grpo", "evaluate", "export", "report"]
    config = load([])
    (rule,) = keys.explain("train.warmup_steps", config).rules
    assert rule.startswith("must be at most train.steps (")
    (first, *_) = keys.explain("layout.train.model_parallel", config).rules
    assert first.startswith("must divide num_attention_heads (")
    wait = keys.explain("launcher.grace_s", config)
    assert (wait.reruns, wait.unit) == ((), "seconds")
    assert keys.explain("seed", config).read_by[0] == "fetch"
    assert keys.explain("train.loss_type", config).type.startswith("one of ")
    assert "beta" in keys.explain("train", config).fields


def test_options_of_hydra_print_the_configuration():
    for option, expected in ((["--cfg", "job"], "beta: 0.5"), (["--info", "defaults"], "model/tiny")):
        command = [sys.executable, "-m", "pipeline", *option, "train.beta=0.5"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert shown.returncode == 0 and expected in shown.stdout, shown.stderr
