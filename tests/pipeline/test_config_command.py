"""`grpoflow config`: the printed configuration, the explanation of a key, and files for --config."""

import json
import subprocess
import sys

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from pipeline.cli import main
from pipeline.config import file
from pipeline.config.grammar import word
from pipeline.config.load import load
from pipeline.plan import keys
from stages.fetch.builtin import write_config
from tests.stages.weights.checkpoints import make_model

EXPERIMENT = ["experiment=mindrlhf_7b", "dataset=arith", "train.steps=3", "+engine.env.WORLD_SIZE='8'"]


@pytest.mark.parametrize(
    "overrides",
    [[], EXPERIMENT, ["train.keep_best=true", "layout=dp1_mp1_pp1"], ["layout.train.model_parallel=1"]],
)
def test_the_printed_configuration_is_the_runs_and_can_be_read_again(tmp_path, overrides, printed, shown):
    saved, values = tmp_path / "saved.yaml", load(overrides).plain()
    saved.write_text(shown("config", *overrides).out)
    read = file.read(saved, [], None)
    assert load(read).plain() == values
    assert len(read) < 25  # the choices and the values that differ from them
    assert printed("config", *overrides) == json.loads(json.dumps(values))


def test_typed_overrides_replace_the_files_values_with_all_that_they_imply(tmp_path):
    saved = tmp_path / "mine.yaml"
    saved.write_text(
        "defaults: [{layout: dp2_mp1_pp1}]\ntrain: {beta: 0.5, steps: 7}\nmodel: {num_hidden_layers: 4}\n"
    )
    typed = ["train.beta=0.25", "layout=dp1_mp1_pp1", "model=qwen2_5_0_5b"]
    config = load([*file.read(saved, typed, None), *typed])
    assert (config.train.beta, config.train.steps, config.train.warmup_steps) == (0.25, 7, 5)
    assert (config.layout.name, config.model.num_hidden_layers) == ("dp1_mp1_pp1", 24)


@pytest.fixture
def own(tmp_path):
    """A user's dataset and model, by name."""
    for name, split in (("data", "train"), ("data", "test"), ("other", "train")):
        (tmp_path / name).mkdir(exist_ok=True)
        rows = [json.dumps({"question": f"{i}?", "answer": f"#### {i}"}) for i in range(600)]
        (tmp_path / name / f"{split}.jsonl").write_text("\n".join(rows))
    for name, layers in (("model", 2), ("deeper", 3)):
        (tmp_path / name).mkdir()
        shape = make_model(vocab_size=512, max_position_embeddings=4096, num_hidden_layers=layers)
        write_config(shape, {"bos": None, "eos": [1], "pad": 0}, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "dataset.path={}/data", "dataset.path={}/data/train.jsonl dataset.test_rows=20",
        "dataset.path={}/data dataset.source=local", "dataset.path={}/data dataset.train_rows=500",
        "model.path={}/model", "model.path={}/model model.source=local model.rope_theta=100.0",
        "model.path={0}/model dataset.path={0}/data layout=dp1_mp1_pp1", "dataset=gsm8k dataset.path={}/data",
        "experiment=gsm8k_smoke dataset.path={0}/data model.path={0}/model",
        "dataset.files={{train:{{name:'https://example.org/x.jsonl',sha256:null}},test:null}}",
        "report.title='\\${{seed}}' seed=3",
    ],
)  # fmt: skip
def test_own_data_and_models_are_printed_and_read_again(own, words, shown):
    overrides, saved = words.format(own).split(), own / "saved.yaml"
    config = load(overrides)
    for arguments in (overrides, ["--config", str(saved)]):
        saved.write_text(shown("config", *arguments).out)
        assert load(file.read(saved, [], None)) == config


def test_a_saved_configuration_has_the_same_fingerprints(own, printed, shown):
    overrides = [f"dataset.path={own}/data", f"store={own}/s", "train.steps=9"]
    saved = own / "saved.yaml"
    saved.write_text(shown("config", *overrides).out)
    before, after = (printed("plan", *words, code=10) for words in (overrides, ["--config", str(saved)]))
    assert [row["fingerprint"] for row in before["stages"]] == [row["fingerprint"] for row in after["stages"]]


def test_another_path_replaces_a_saved_one_with_all_that_it_implies(own, shown):
    saved = own / "saved.yaml"
    saved.write_text(shown("config", f"dataset.path={own}/data", f"model.path={own}/model").out)
    typed = [f"model.path={own}/deeper", f"dataset.path={own}/other/train.jsonl"]
    for gone in ("nothing", "model"):
        if gone != "nothing":
            (own / gone / "config.json").unlink()
        config = load([*file.read(saved, typed, None), *typed])
        assert (config.dataset.name, config.model.source) == ("local", "local")
        assert config.model.num_hidden_layers == 3 or gone == "model"


@pytest.mark.parametrize(
    "value",
    ["", "a b", "it's", "\\boxed{}", "a\\", "a\\'b", "\n", "ü,[=:]", "null", "7", None, True, 0.5, 1e-8,
     '"x"', [], ["a'b", 1], {"a": {"b": ["c"]}}],
)  # fmt: skip
def test_a_value_survives_hydras_grammar(value):
    parsed = OverridesParser.create().parse_override(f"a.b={word(value)}").value()
    assert json.loads(json.dumps(parsed)) == value


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("train:\n  beta: 0.1\nsft:\n  steps: 3\ntrain:\n  steps: 4\n", "/my.yaml:5"),
        ("train:\n  beta: 0.1\n  beta: 0.2\n", "/my.yaml:3"),
        ("train:\n", "train"),
        ("seed: 2020-01-01\n", "seed"),
        ("seed: !!python/object:os.system {}\n", "/my.yaml:1"),
        ("1: 2\n", "1"),
        ("train: 5\n", "train"),
        ("train: {}\nmodel: {name: x}\n", "model.name"),
        ("train: &copied {beta: 0.1}\nsft: *copied\n", "/my.yaml:2"),
        ("[" * 1000, "/my.yaml"),
        ("a: " + "{a: " * 1000 + "1" + "}" * 1000, "/my.yaml"),
        ("seed: 1\n---\nseed: 2\n", "/my.yaml"),
        ("seed: \x07\n", "/my.yaml"),
        ("defaults: [tiny]\n", "/my.yaml"),
        ("", "/my.yaml"),
        ("- a\n", "/my.yaml"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_configuration_is_refused(text, path, tmp_path, shown):
    config, store = tmp_path / "my.yaml", tmp_path / "store"
    config.write_text(text)
    for command in ("sweep --plan", "config", "plan"):
        error = shown(*command.split(), "--config", str(config), f"store={store}", code=2).err
        assert path in error.replace(str(tmp_path), "") and "Traceback" not in error
    assert not store.exists()
    assert main(["plan", "--config", str(tmp_path / "absent")]) == 2


def test_a_key_is_explained_by_its_field_the_graph_and_the_rules(printed):
    beta = printed("config", "--explain", "train.beta", "train.beta=0.5")
    assert beta["meaning"] and beta["type"] == "number, at least 0"
    assert (beta["value"], beta["default"]) == (0.5, 0.01)
    assert beta["read_by"] == ["grpo", "export"]
    assert beta["reruns"] == ["grpo", "evaluate", "export", "report"]
    config = load([])
    (rule,) = keys.explain("train.warmup_steps", config).rules
    assert rule.startswith("must be at most train.steps x ")
    (first, *_) = keys.explain("layout.train.model_parallel", config).rules
    assert first.startswith("must divide num_attention_heads (")
    wait = keys.explain("launcher.grace_s", config)
    assert (wait.reruns, wait.unit) == ((), "seconds")
    assert keys.explain("seed", config).read_by[0] == "fetch"
    assert keys.explain("train.loss_type", config).type.startswith("one of ")
    assert "beta" in keys.explain("train", config).fields


def test_a_key_of_another_engine_is_explained(printed, shown):
    epochs = printed("config", "--explain", "engine.epochs")
    assert epochs["engines"] == ["mindrlhf", "mindrlhf_one_stage"] and epochs["default"] == 1
    for key in ("engine.strategy", "engine.verifier_function", "engine.python", "engine.env.PATH"):
        assert printed("config", "--explain", key.removesuffix(".PATH"))["engines"]
    own = printed(
        "config", "--explain", "engine.micro_batch_size", "engine=verl", "engine.micro_batch_size=2"
    )
    assert (own["value"], own["engines"]) == (2, ["areal", "mindspeed_rl", "verl"])
    assert printed("config", "--explain", "engine.name")["engines"] == []
    for arguments in (["--explain", "engine.nosuch"], ["engine.nosuch=1"]):
        assert "engine.nosuch" in shown("config", *arguments, code=2).err
    assert "engine=mindrlhf" in shown("config", "engine.epochs=2", code=2).err


def test_options_of_hydra_print_the_configuration():
    for option, expected in ((["--cfg", "job"], "beta: 0.5"), (["--info", "defaults"], "model/tiny")):
        command = [sys.executable, "-m", "pipeline", *option, "train.beta=0.5"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert shown.returncode == 0 and expected in shown.stdout, shown.stderr
