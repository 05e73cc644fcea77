"""Plan checks files and finished artifacts with the stages' own functions, and refuses what they refuse."""

import hashlib
import json
import venv
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pipeline.cli import main
from pipeline.errors import ConfigError
from pipeline.plan.target import Target
from pipeline.run.run import Run, prepare_plan
from pipeline.store import history
from stages.base.errors import InputError
from stages.base.reader import read
from stages.fetch import arith, tokenizer_files
from stages.fetch.builtin import write_model
from stages.fetch.stage import fetch_model
from stages.grpo.rules import check_resumed
from stages.models.config import ModelConfig
from stages.tokenizer import special_ids
from tests.pipeline.artifacts import commit_spec
from tests.stages.fetch.settings import fetch, model_values

SHAPE = ("hidden_size=16", "num_hidden_layers=2", "intermediate_size=32", "vocab_size=400")


def refused(store, *overrides):
    """Return plan's errors; check that it left nothing behind."""
    with pytest.raises(ConfigError) as caught:
        prepare_plan([f"store={store}", *overrides])
    assert not [path for path in store.glob("*") if path.is_dir()]
    return str(caught.value)


@pytest.fixture
def directory(tmp_path):
    """A Hugging Face directory."""
    root = tmp_path / "model"
    root.mkdir()
    tokenizer_files.write_trained(["Tom has 3 and 12 apples.\n"] * 5, 400, root)
    write_model(shape(root), tokenizer_files.ending_ids(root), 0, root)
    return root


def shape(root, **changes):
    values = model_values(source="local", path=str(root), vocab_size=400, intermediate_size=32)
    return read(ModelConfig, {**values, **changes})


def typed(root):
    values = shape(root)
    names = ("rope_theta", "rms_norm_eps", "tie_word_embeddings", "torch_dtype", "num_attention_heads",
             "num_key_value_heads")  # fmt: skip
    return [
        f"model.path={root}", "model.source=local", *(f"model.{name}" for name in SHAPE),
        *(f"model.{name}={str(getattr(values, name)).lower()}" for name in names),
    ]  # fmt: skip


def fetched(root, tmp_path):
    """Return the stage's error about the same directory."""
    output = tmp_path / "fetched"
    output.mkdir()
    fetch_model(shape(root), fetch(), output, tmp_path)
    return output


def test_a_valid_directory_is_accepted_by_plan_and_stage(directory, tmp_path):
    prepare_plan([f"store={tmp_path / 'store'}", *typed(directory)])
    assert special_ids(fetched(directory, tmp_path), shape(directory)).pad < 400


@pytest.mark.parametrize("key", ["model.path", "model.tokenizer_path"])
@pytest.mark.parametrize(
    "overrides", [["tokenize.chat_template=true"], ["sft_data.path=rows.jsonl", "sft_data.kind=alpaca"]]
)
def test_a_tokenizer_without_a_chat_template_is_refused_if_one_is_used(key, overrides, directory, tmp_path):
    """Llama's base models have no chat template, and none of ChatML's tokens."""
    settings = json.loads((directory / "tokenizer_config.json").read_text()) | {"chat_template": None}
    text = json.dumps(settings).replace("<|im_start|>", "<|start|>")
    (directory / "tokenizer_config.json").write_text(text)
    model = typed(directory) if key == "model.path" else [f"{key}={directory}"]
    plain = [f"store={tmp_path / 'store'}", *model]
    prepare_plan(plain)
    (tmp_path / "rows.jsonl").touch()
    changes = [text.replace("rows.jsonl", str(tmp_path / "rows.jsonl")) for text in overrides]
    assert "tokenizer_config.json: holds no chat template" in refused(tmp_path / "store", *model, *changes)


@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_quantised_weights_are_refused(dtype, directory, tmp_path):
    file = directory / "model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"] = weights["model.norm.weight"].astype(dtype)
    save_file(weights, file, {"format": "pt"})
    message = refused(tmp_path / "store", *typed(directory))
    assert f"{file}: model.norm.weight=" in message and "before quantisation" in message
    with pytest.raises(InputError, match="before quantisation"):
        fetched(directory, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("eos_token_id", []), ("eos_token_id", [0, 400]), ("bos_token_id", 400), ("eos_token_id", [True])],
)
def test_invalid_token_ids_of_a_generation_config_are_refused(key, value, directory, tmp_path):
    file = directory / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    message = refused(tmp_path / "store", *typed(directory))
    assert f"{file}: {key}={value}" in message and f"set model.{key}" in message
    with pytest.raises(InputError, match=f"set model.{key}"):
        special_ids(directory, shape(directory))
    corrected = [0] if key == "eos_token_id" else 0
    special_ids(directory, shape(directory, **{key: corrected}))
    prepare_plan([f"store={tmp_path / 'store'}", *typed(directory), f"model.{key}={corrected}"])


@pytest.mark.parametrize(("key", "value"), [("hidden_act", "gelu"), ("no_such_key", 1)])
def test_unsupported_keys_of_config_json_are_refused(key, value, directory, tmp_path):
    file, store = directory / "config.json", tmp_path / "store"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    for overrides in (typed(directory), [f"model.path={directory}"]):
        assert f"{file}: {key}={value}: " in refused(store, *overrides)
        assert main(["plan", f"store={store}", *overrides]) == 2
    with pytest.raises(ConfigError, match=f"{key}={value}: "):
        fetched(directory, tmp_path)


def test_the_window_must_agree_with_config_json(directory, tmp_path):
    file = directory / "config.json"
    window = {"use_sliding_window": True, "sliding_window": 96, "max_window_layers": 1}
    file.write_text(json.dumps({**json.loads(file.read_text()), **window}))
    message = refused(tmp_path / "store", *typed(directory))
    assert f"model.sliding_window: disagrees with {file}: sliding_window=96" in message
    prepare_plan([f"store={tmp_path / 'store'}", *typed(directory), "model.sliding_window=96"])


def test_the_vocabulary_must_hold_the_tokenizers_tokens(directory, tmp_path):
    prepare_plan([f"store={tmp_path / 'store'}", f"model.tokenizer_path={directory}"])
    message = refused(tmp_path / "store", f"model.tokenizer_path={directory}", "model.vocab_size=259")
    assert "model.vocab_size=259: must be at least the tokenizer's" in message


@pytest.mark.parametrize("rows", [8000, 10500, 10**9])
def test_more_rows_than_distinct_questions_are_refused(rows, tmp_path):
    """10,692 questions have two addends; about a sixth of them is held out."""
    few = ["dataset.arith.max_addends=2", f"dataset.train_rows={rows}", "dataset.test_rows=16"]
    if rows == 8000:
        prepare_plan([f"store={tmp_path / 'store'}", *few])
        assert len(arith.generate(arith.ArithConfig(2, 2, 0.5), 0, rows, 16)[0]) == rows
        return
    assert "distinct questions" in refused(tmp_path / "store", *few)


@pytest.mark.parametrize("launcher", ["ssh", "slurm"])
def test_engine_local_needs_the_local_launcher(launcher, tmp_path):
    message = refused(tmp_path / "store", f"launcher={launcher}", "launcher.hosts=[a]")
    assert f"launcher={launcher}: is for engines that are programs of their own" in message
    by_mindformers = ["engine.sft=mindformers", f"launcher={launcher}", "launcher.hosts=[a]"]
    prepare_plan([f"store={tmp_path / 'store'}", *by_mindformers])


def checkpoint(directory, step):
    """A checkpoint for train.resume_from, and its weights."""
    weights = directory / "weights" / "rank_0" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(bytes(range(200)))
    entry = {"bytes": 200, "sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
    state = {"step": step, "position": 0, "files": {"weights/rank_0/model.safetensors": entry}}
    (directory / "state.json").write_text(json.dumps(state))
    return weights


def test_a_checkpoint_of_sft_is_refused(tmp_path):
    checkpoint(tmp_path / "step", 3)
    file = tmp_path / "step" / "state.json"
    state = json.loads(file.read_text())
    del state["position"]
    file.write_text(json.dumps(state | {"recent": [0.1]}))
    message = refused(tmp_path / "store", f"train.resume_from={tmp_path / 'step'}")
    assert "is no checkpoint of a grpo stage" in message


@pytest.mark.parametrize(("step", "message"), [(39, None), (40, "is of step 40"), ("x", "is no checkpoint")])
def test_a_checkpoint_of_the_last_step_is_refused(step, message, tmp_path):
    checkpoint(tmp_path / "step", step)
    overrides = [f"train.resume_from={tmp_path / 'step'}", "train.steps=40"]
    if message is None:
        train = prepare_plan([f"store={tmp_path / 'store'}", *overrides])[0].config.train
        states = [{"step": number, "position": 0} for number in (39, 40)]
        assert [len(list(check_resumed(train, state))) for state in states] == [0, 1]
        return
    assert message in refused(tmp_path / "store", *overrides)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    weights = checkpoint(tmp_path / "step", 3)
    overrides = [f"store={tmp_path / 'store'}", f"train.resume_from={tmp_path / 'step'}"]
    planned, store = prepare_plan(overrides)
    weights.write_bytes(bytes(200))
    message = refused(tmp_path / "store", *overrides[1:])
    assert "is damaged: the content of weights/rank_0/model.safetensors has changed" in message
    weights.unlink()
    assert "is damaged: " in refused(tmp_path / "store", *overrides[1:])
    commit_spec(store, planned.spec("grpo"), {})  # done: what it went on from may go
    assert prepare_plan(overrides)[0].spec("grpo").key == planned.spec("grpo").key
    (tmp_path / "step" / "state.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"state\.json: "):
        prepare_plan(overrides)


FEW = ["dataset.train_rows=600", "train.validate_every=1", "train.validation_prompts=64"]


def test_the_number_of_rows_is_checked_after_tokenize(tmp_path, capsys):
    overrides = [f"store={tmp_path / 'store'}", *FEW]
    planned, store = prepare_plan(overrides)
    run = Run(planned, store, overrides)
    result = {"files": {name: {"records": 90} for name in ("train", "sft")}}
    commit_spec(store, planned.spec("tokenize"), {"result.json": json.dumps(result)})
    with pytest.raises(ConfigError, match="leaves 26 of 90 prompts"):
        run.build("sft")
    assert "sft.batch_size=32: must be at most the 0 examples" in capsys.readouterr().err
    assert history.runs(store.root)[run.id].failed_stage == "sft"
    assert main(["plan", *overrides]) == 2


def test_rows_are_not_checked_for_stages_that_are_not_requested(tmp_path):
    overrides, target = [f"store={tmp_path / 'store'}", *FEW], Target(only=("split",))
    planned, store = prepare_plan(overrides, target=target)
    result = {"files": {name: {"records": 9} for name in ("train", "sft")}}
    commit_spec(store, planned.spec("tokenize"), {"result.json": json.dumps(result)})
    assert prepare_plan(overrides, target=target)[0].requested == planned.requested
    with pytest.raises(ConfigError, match=r"sft\.batch_size"):
        prepare_plan(overrides, target=Target(only=("sft",)))


DATA = Path(__file__).parents[1] / "data"
SEVEN = ("experiment=mindrlhf_7b", "dataset=arith")
RL = ("experiment=mindspeed_rl_7b", "dataset=arith")


@pytest.mark.parametrize(
    ("base", "typed", "message"),
    [
        (("model=qwen2_5_0_5b", "layout=dp1_mp1_pp1"), "model.path=/no", "is not a directory"),
        ((), "model.tokenizer_path=/no", "/no: is not a directory"),
        (("dataset=gsm8k",), "dataset.path=/no", "/no: cannot be read"),
        ((), "sft_data.path=/no", "/no: cannot be read"),
        (SEVEN, "engine.mindrlhf_home=/no", "must be a checkout of"),
        (("experiment=mindrlhf_one_stage_7b", "dataset=arith"), "engine.mindrlhf_home=/no", "must be"),
        (SEVEN, "engine.mindformers_home=/no", "is not a directory"),
        (SEVEN, "engine.msadapter_home=/no", "is not a directory"),
        (SEVEN, "engine.python=/no", "is no program"),
        (SEVEN, "engine.python=no_such_python", "is no program"),
        (SEVEN, "engine.env_scripts=[/no]", "engine.env_scripts[0]=/no: is not a file"),
        (RL, "engine.mindspeed_rl_home=/no", "must be a checkout of"),
        (RL, "engine.convert_python=/no", "is no program"),
        (RL, "engine.mindspeed_llm_home=/no", ""),
        ((*SEVEN, "engine.sft=mindformers"), "mindformers.home=/no", "is not a directory"),
    ],
)
def test_missing_files_are_refused(tmp_path, base, typed, message, capsys):
    assert main(["plan", f"store={tmp_path}", *base, typed]) == 2
    error = capsys.readouterr().err
    expected = message if message.startswith(("/no", "engine")) else f"{typed}: {message}"
    assert expected in error


def test_only_stages_that_run_need_checkouts(tmp_path):
    overrides = [f"store={tmp_path / 'store'}", *SEVEN]
    planned, store = prepare_plan(overrides)
    for spec in planned.specs:
        if spec.name not in ("grpo", "report"):
            commit_spec(store, spec, {})
    with pytest.raises(ConfigError, match=r"engine\.mindrlhf_home: is required"):
        Run(planned, store, overrides)
    commit_spec(store, planned.spec("grpo"), {})
    assert [spec.name for spec in Run(planned, store, overrides).missing()] == ["report"]


@pytest.mark.parametrize(
    "elsewhere",
    [
        ["engine.python=/no/python", "launcher=slurm"],
        ["engine.python=/no/python", "engine.container=[docker,exec,x]"],
        ["engine.python=python_of_a_script", f"engine.env_scripts=[{__file__}]"],
        ["model.path=/no/model", "launcher=slurm"],
    ],
)
def test_files_of_remote_nodes_or_containers_are_not_checked(tmp_path, elsewhere):
    assert main(["plan", f"store={tmp_path}", *SEVEN, *elsewhere]) == 10


@pytest.mark.parametrize(
    ("base", "setting", "file", "rule"),
    [
        (SEVEN, "engine.mindrlhf_home", "mindformers/__init__.py", "is a checkout of mindformers, must be"),
        (RL, "engine.mindspeed_rl_home", "mindspeed_llm/__init__.py", "is a checkout of MindSpeed-LLM, must"),
        (RL, "engine.mindspeed_llm_home", "mindspeed_rl/__init__.py", "is a checkout of MindSpeed-RL, must"),
        (SEVEN, "engine.mindformers_home", "mindformers/__init__.py", "must be a checkout of"),
        (
            (*SEVEN, "engine.sft=mindformers"),
            "mindformers.home",
            "mindrlhf/trainer/x",
            "is a checkout of mindrlhf, must",
        ),
    ],
)
def test_a_checkout_of_another_program_is_refused_by_its_name(tmp_path, base, setting, file, rule, capsys):
    home = tmp_path / "home"
    (home / file).parent.mkdir(parents=True)
    (home / file).touch()
    (home / "convert_ckpt.py").touch()
    assert main(["plan", f"store={tmp_path / 'store'}", *base, f"{setting}={home}"]) == 2
    assert f"{setting}={home}: {rule}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("base", "setting", "home", "contract", "code"),
    [
        (SEVEN, "engine.mindrlhf_home", "mindrlhf_standin/e8a8fc1", "0cd087455", 2),
        (SEVEN, "engine.mindrlhf_home", "mindrlhf_standin/0cd087455", "e8a8fc1", 2),
        (SEVEN, "engine.mindrlhf_home", "mindrlhf_standin/0cd087455", "0cd087455", 10),
        (RL, "engine.mindspeed_rl_home", "mindspeed_rl_standin/head", "667a547", 2),
        (RL, "engine.mindspeed_rl_home", "mindspeed_rl_standin/head", "05a90d7", 10),
    ],
)
def test_a_contract_must_be_the_checkouts(tmp_path, base, setting, home, contract, code, capsys):
    overrides = [f"{setting}={DATA / home}", f"engine.contract={contract}"]
    assert main(["plan", f"store={tmp_path / 'store'}", *base, *overrides]) == code
    error = capsys.readouterr().err
    assert (f"{setting}={DATA / home}" in error and contract in error) == (code == 2)


@pytest.mark.parametrize(
    ("base", "setting", "missing"),
    [
        (SEVEN, "engine.python", "mindspore"),
        (("experiment=mindrlhf_one_stage_7b", "dataset=arith"), "engine.python", "mindspore"),
        (RL, "engine.python", "ray"),
        ((*SEVEN, "engine.sft=mindformers"), "mindformers.python", "mindspore"),
    ],
)
def test_an_interpreter_without_the_engines_packages_is_refused(tmp_path, base, setting, missing, capsys):
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    assert main(["plan", f"store={tmp_path / 'store'}", *base, f"{setting}={python}"]) == 2
    assert f"{setting}={python}: has no {missing}" in capsys.readouterr().err


def test_packages_on_the_engines_python_path_count(tmp_path):
    venv.create(tmp_path / "venv")
    python = f"engine.python={tmp_path / 'venv' / 'bin' / 'python'}"
    (tmp_path / "site" / "mindspore-2.7.0.dist-info").mkdir(parents=True)
    (tmp_path / "site" / "mindspore-2.7.0.dist-info" / "METADATA").write_text(
        "Name: mindspore\nVersion: 2.7.0\n"
    )
    path = f"+engine.env.PYTHONPATH={tmp_path / 'site'}"
    assert main(["plan", f"store={tmp_path / 'store'}", *SEVEN, python]) == 2
    assert main(["plan", f"store={tmp_path / 'store'}", *SEVEN, python, path]) == 10
