"""Plan checks files and finished artifacts with the stages' own functions, and refuses what they refuse.

What each function refuses is in tests/stages; here one case of each.
"""

import json
import venv
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.plan.checks import tag_warnings
from pipeline.plan.target import Target
from pipeline.run.run import Run, prepare_plan
from pipeline.store import history
from stages import engines
from stages.base.reader import read
from stages.fetch import tokenizer_files
from stages.fetch.builtin import write_model
from stages.models.config import ModelConfig
from tests.pipeline.artifacts import commit_spec, data_card, write_checkpoint
from tests.stages.fetch.settings import model_values
from tests.upstream.verl.prepare_template import TEMPLATE

DATA = Path(__file__).parents[1] / "data"
SEVEN = ("experiment=mindrlhf_7b", "dataset=arith")
ONE_STAGE = ("experiment=mindrlhf_one_stage_7b", "dataset=arith")
RL = ("experiment=mindspeed_rl_7b", "dataset=arith")
SFT = (*SEVEN, "engine.sft=mindformers")


def refused(store, *overrides):
    """Return plan's errors; check that it left nothing behind."""
    with pytest.raises(ConfigError) as caught:
        prepare_plan([f"store={store}", *overrides])
    assert not [path for path in store.glob("*") if path.is_dir()]
    return str(caught.value)


def write_hugging_face(root):
    root.mkdir()
    tokenizer_files.write_trained(["Tom has 3 and 12 apples.\n"] * 5, 400, root)
    shape = model_values(source="local", path=str(root), vocab_size=400, intermediate_size=32)
    write_model(read(ModelConfig, shape), tokenizer_files.ending_ids(root), 0, root)
    return root


@pytest.fixture
def model(tmp_path):
    """A Hugging Face directory that a test may change."""
    return write_hugging_face(tmp_path / "model")


def edit(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize("key", ["model.path", "model.tokenizer_path"])
@pytest.mark.parametrize(
    "overrides", [["tokenize.chat_template=true"], ["sft_data.path=rows.jsonl", "sft_data.kind=alpaca"]]
)
def test_a_tokenizer_without_a_chat_template_is_refused_if_one_is_used(
    key, overrides, model, tmp_path, monkeypatch
):
    """Llama's base models have no chat template, and none of ChatML's tokens."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").touch()
    settings = model / "tokenizer_config.json"
    edit(settings, chat_template=None)
    settings.write_text(settings.read_text().replace("<|im_start|>", "<|start|>"))
    prepare_plan([f"store={tmp_path / 'store'}", f"{key}={model}"])
    message = refused(tmp_path / "store", f"{key}={model}", *overrides)
    assert "tokenizer_config.json: holds no chat template" in message


@pytest.mark.parametrize("key", ["model.path", "model.tokenizer_path"])
def test_a_chat_template_without_functions_is_refused_if_the_model_may_call_some(
    key, model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = 'def add(a: int):\n    """Add.\n\n    Args:\n        a: A number.\n    """\n'
    (tmp_path / "mine.py").write_text(text)
    turns = ["engine=verl", "engine.device=cpu", "layout=dp1_mp1_pp1", "tokenize.chat_template=true"]
    turns += ["rollout.agent=tool", "rollout.tools=[mine:add]", f"{key}={model}"]
    turns.append("rollout.tools_length=64")
    message = refused(tmp_path / "store", *turns)
    assert "its chat template leaves out the functions that the model may call" in message
    edit(model / "tokenizer_config.json", chat_template=TEMPLATE)
    prepare_plan([f"store={tmp_path / 'store'}", *turns])


@pytest.mark.parametrize("key", ["model.path", "model.tokenizer_path"])
@pytest.mark.parametrize("left", ["tokenizer.model", "spiece.model"])
def test_a_directory_with_a_tokenizer_of_sentencepiece_alone_is_refused(key, left, model, tmp_path):
    """Llama 2's original files."""
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        (model / name).unlink()
    (model / left).touch()
    message = refused(tmp_path / "store", f"{key}={model}")
    assert message.startswith(f"{model}: ") and f"SentencePiece's {left} is not read" in message


def test_quantised_weights_are_refused(model, tmp_path):
    file = model / "model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"] = weights["model.norm.weight"].astype("int8")
    save_file(weights, file, {"format": "pt"})
    assert f"{file}: model.norm.weight=" in refused(tmp_path / "store", f"model.path={model}")


WINDOW = {"use_sliding_window": True, "sliding_window": 96, "max_window_layers": 1}


@pytest.mark.parametrize(
    ("name", "values", "typed", "shown", "remedy"),
    [
        ("generation_config.json", {"eos_token_id": [0, 400]}, [], None, "model.eos_token_id=[0]"),
        ("generation_config.json", {"eos_token_id": [True]}, [], None, "model.eos_token_id=[0]"),
        ("generation_config.json", {"bos_token_id": 400}, [], None, "model.bos_token_id=0"),
        ("config.json", {"hidden_act": "gelu"}, [], None, None),
        ("config.json", {"no_such_key": 1}, [], None, None),
        ("config.json", WINDOW, ["model.sliding_window=128"], "sliding_window=96", "model.sliding_window=96"),
    ],
)
def test_invalid_values_in_a_models_files_are_refused(name, values, typed, shown, remedy, model, tmp_path):
    edit(model / name, **values)
    overrides = [f"model.path={model}", *typed]
    message = refused(tmp_path / "store", *overrides)
    assert f"{model / name}: {shown or '='.join(map(str, *values.items()))}" in message
    assert all(f"{override}: disagrees with" in message for override in typed)
    if remedy is not None:
        prepare_plan([f"store={tmp_path / 'store'}", *overrides, remedy])


@pytest.fixture
def checkpoint(tmp_path):
    """The weights of a checkpoint of step 39, whose reference has moved."""
    return write_checkpoint(tmp_path / "step", 39, bytes(range(200)), "weights", "reference")


@pytest.fixture
def resumed(checkpoint, tmp_path):
    """Overrides of a run that can continue from it."""
    path = f"train.resume_from={tmp_path / 'step'}"
    return [f"store={tmp_path / 'store'}", path, "train.steps=40", "train.ref_model_sync_steps=4"]


@pytest.mark.parametrize(
    ("state", "override", "message"),
    [
        ({"step": 40}, "seed=0", "is of step 40"),
        ({"step": "x"}, "seed=0", "does not hold a checkpoint's state"),
        ({"position": None}, "seed=0", "is no checkpoint of a grpo stage"),
        ({}, "train.ref_model_sync_steps=0", "has a reference that moved"),
    ],
)
def test_a_checkpoint_that_the_run_cannot_continue_is_refused(state, override, message, resumed, tmp_path):
    prepare_plan(resumed)
    file = tmp_path / "step" / "state.json"
    values = {**json.loads(file.read_text()), **state}
    file.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    assert message in refused(tmp_path / "store", *resumed, override)


def test_a_damaged_checkpoint_is_refused_unless_grpo_is_done(checkpoint, resumed, tmp_path):
    planned, store = prepare_plan(resumed)
    checkpoint.write_bytes(bytes(200))
    message = refused(tmp_path / "store", *resumed)
    assert "is damaged: the content of weights/rank_0/model.safetensors has changed" in message
    checkpoint.unlink()
    assert "is damaged: " in refused(tmp_path / "store", *resumed)
    commit_spec(store, planned.spec("grpo"), {})
    assert prepare_plan(resumed)[0].spec("grpo").key == planned.spec("grpo").key


FEW = ["dataset.train_rows=600", "train.validate_every=1", "train.validation_prompts=64"]


def test_the_number_of_rows_is_checked_after_tokenize_for_requested_stages(tmp_path):
    overrides, split = [f"store={tmp_path / 'store'}", *FEW], Target(only=("split",))
    planned, store = prepare_plan(overrides)
    run = Run(planned, store, overrides)
    result = {"files": {name: data_card(90) for name in ("train", "sft")}}
    commit_spec(store, planned.spec("tokenize"), {"result.json": json.dumps(result)})
    with pytest.raises(ConfigError, match="leaves 26 of 90 prompts"):
        run.build("sft")
    assert history.runs(store.root)[run.id].failed_stage == "sft"
    assert main(["plan", *overrides]) == 2
    prepare_plan(overrides, target=split)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Values of {names} in overrides: no file, directories, an interpreter without packages, mocks."""
    root = tmp_path_factory.mktemp("files")
    (root / "home").mkdir()
    venv.create(root / "venv")
    package = root / "site" / "mindspore-2.7.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Name: mindspore\nVersion: 2.7.0\n")
    return {
        "no": "/no", "home": root / "home", "model": write_hugging_face(root / "model"),
        "python": root / "venv/bin/python", "script": __file__, "site": root / "site",
        "rlhf": DATA / "mindrlhf_standin", "rl": DATA / "mindspeed_rl_standin",
    }  # fmt: skip


FEW_QUESTIONS = ("dataset.arith.max_addends=2", "dataset.test_rows=16")
"""10,692 questions have two addends; about a sixth of them is held out."""


@pytest.mark.parametrize(
    ("base", "typed", "refusal"),
    [
        (FEW_QUESTIONS, "dataset.train_rows=10500", "distinct questions"),
        (FEW_QUESTIONS, "dataset.train_rows=8000", None),
        ((), "model.vocab_size=259 model.tokenizer_path={model}", "must be at least the tokenizer's"),
        ((), "model.tokenizer_path={model}", None),
        ((), "launcher=ssh launcher.hosts=[a]", "is for engines that are"),
        ((), "launcher=slurm", "is for engines that are"),
        (("engine.sft=mindformers",), "launcher=ssh launcher.hosts=[a]", None),
        (("model=qwen2_5_0_5b", "layout=dp1_mp1_pp1"), "model.path={no}", "is not a directory"),
        ((), "model.tokenizer_path={no}", "/no: is not a directory"),
        (("dataset=gsm8k",), "dataset.path={no}", "/no: cannot be read"),
        ((), "sft_data.path={no}", "/no: cannot be read"),
        (SEVEN, "engine.mindrlhf_home={no}", "must be a checkout of"),
        (ONE_STAGE, "engine.mindrlhf_home={no}", "must be"),
        (SEVEN, "engine.msadapter_home={no}", "is not a directory"),
        (SEVEN, "engine.python={no}", "is no program"),
        (SEVEN, "engine.python=no_such_python", "is no program"),
        (SEVEN, "engine.env_scripts=[{no}]", "engine.env_scripts[0]=/no: is not a file"),
        (RL, "engine.convert_python={no}", "is no program"),
        # directories of nodes and containers are not here, and a script may put the interpreter on the path
        (SEVEN, "engine.python={no}/python launcher=slurm", None),
        (SEVEN, "engine.python={no}/python engine.container=[docker,exec,x]", None),
        (SEVEN, "engine.python=python_of_a_script engine.env_scripts=[{script}]", None),
        (SEVEN, "model.path={no}/model launcher=slurm", None),
        # another program, or another version than that of the contract
        (SEVEN, "engine.mindrlhf_home={home}", "must be a checkout of mindspore-ai/mindrlhf"),
        (RL, "engine.mindspeed_rl_home={home}", "must be a checkout of Ascend/MindSpeed-RL"),
        (SEVEN, "engine.mindformers_home={home}", "must be a checkout of mindformers"),
        (SFT, "mindformers.home={home}", "must be a checkout of mindformers"),
        (SEVEN, "engine.contract=0cd087455 engine.mindrlhf_home={rlhf}/e8a8fc1", "contradicts"),
        (SEVEN, "engine.mindrlhf_home={rlhf}/0cd087455 engine.contract=e8a8fc1", "check out e8a8fc1"),
        (SEVEN, "engine.mindrlhf_home={rlhf}/0cd087455 engine.contract=0cd087455", None),
        (RL, "engine.mindspeed_rl_home={rl}/checkout engine.contract=667a547", None),
        # an interpreter without the engine's packages
        (SEVEN, "engine.python={python}", "has no mindspore"),
        (ONE_STAGE, "engine.python={python}", "has no mindspore"),
        (RL, "engine.python={python}", "has no ray"),
        (SFT, "mindformers.python={python}", "has no mindspore"),
        (SEVEN, "engine.python={python} +engine.env.PYTHONPATH={site}", None),
    ],
)
def test_files_and_programs_of_this_machine_are_checked(base, typed, refusal, files, tmp_path, capsys):
    overrides = typed.format(**files).split()
    code = main(["plan", f"store={tmp_path / 'store'}", *base, *overrides])
    error = capsys.readouterr().err
    assert code == (10 if refusal is None else 2), error
    if refusal is not None:
        assert refusal in error and (refusal.startswith(("/no", "engine")) or f"{overrides[0]}: " in error)


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


OPENS = "{{ messages[-1]['content'] }}\n<think>\n"
CLOSES = OPENS + "\n</think>\n\n"
FORM = [
    "reward=think",
    "tokenize.chat_template=true",
    "tokenize.prompt_suffix='<think></think><answer></answer>'",
]


@pytest.mark.parametrize(
    ("template", "special", "engine", "warning"),
    [
        (OPENS, True, "local", None),
        (OPENS, False, "mindrlhf", "the prompt ends with <think>, and engine=mindrlhf reads what follows"),
        (CLOSES, False, "local", "the chat template ends the prompt with a closed </think>"),
        (
            OPENS.partition("<think>")[0],
            True,
            "mindrlhf",
            "</answer> is a special token, which engine=mindrlhf",
        ),
        (OPENS.partition("<think>")[0], False, "mindrlhf", None),
    ],
)
def test_tags_that_no_reward_can_see_are_warned_of(template, special, engine, warning, model, shown):
    settings = json.loads((model / "tokenizer_config.json").read_text())
    added = settings["added_tokens_decoder"]
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        added[str(max(map(int, added)) + 1)] = {"content": tag, "special": special, **flags}
    edit(model / "tokenizer_config.json", chat_template=template, added_tokens_decoder=added)
    typed = [*FORM, f"model.path={model}", "layout=dp1_mp1_pp1", "sft.enabled=false"]
    config = load(typed)
    lines = tag_warnings(config.model, config.tokenize, config.reward, engines.get(engine))
    assert len(lines) == (warning is not None) and all(warning in line for line in lines)
    if engine == "local":
        problems = json.loads(shown("probe", "--json", *typed).out)["problems"]
        assert [line for line in problems if "</think>" in line] == lines
