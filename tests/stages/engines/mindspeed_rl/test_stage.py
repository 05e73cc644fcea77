"""Inputs and artifacts of the engine's stages; files stand in for the programs' results."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from launch.nodes.start import Start
from pipeline.config.load import load
from stages.base.context import Context
from stages.base.errors import InputError
from stages.engines.mindspeed_rl import convert, export, tokenize, train
from stages.engines.outside import START_FILE, Rendered, write_start
from stages.fetch.stage import run as fetch
from tests.pipeline.stage_digests import WEIGHTS, check
from tests.stages.engines.mindspeed_rl.jobs import HOME, WINDOWS, save_checkpoint, write_index
from tests.stages.engines.mindspeed_rl.test_logs import iteration_line, sample_lines

RANKS = ("mp_rank_00", "mp_rank_01")


@pytest.fixture(scope="module")
def config():
    overrides = [
        "engine=mindspeed_rl", f"engine.mindspeed_rl_home={WINDOWS['05a90d7']}",
        f"engine.mindspeed_llm_home={HOME / 'llm'}", "layout=dp1_mp2_pp1", "train.steps=4",
        "train.checkpoint_every=2", "train.prompts_per_step=4", "train.keep_checkpoints=1",
        "rollout.max_tokens=16", "tokenize.max_prompt_length=200", "tokenize.sft_length=400",
        "model.max_position_embeddings=1024", "dataset.train_rows=24", "dataset.test_rows=8",
        "engine.micro_batch_size=1", *WEIGHTS,
    ]  # fmt: skip
    return load(overrides).plain()


@pytest.fixture(scope="module")
def model(config, tmp_path_factory):
    root = tmp_path_factory.mktemp("fetch")
    (root / "hf").mkdir()
    fetch(Context("fetch", config, {}, root / "hf", root, root / "progress.jsonl"))
    return root / "hf"


def context(config, root, stage, **inputs):
    for name in ("work", "output"):
        (root / name).mkdir(exist_ok=True)
    return Context(stage, config, inputs, root / "output", root / "work", root / "progress.jsonl")


def start_record(made):
    content: dict[str, Any] = json.loads((made.work / START_FILE).read_text())
    return content


def result_of(made):
    return json.loads((made.output / "result.json").read_text())


def rows(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def write_rows(file, listed):
    file.write_text("".join(json.dumps(row) + "\n" for row in listed))


def write_data(stem, count):
    for file in tokenize.data_files(stem):
        write_index(file.with_suffix(""), [[1]] * count)


def launch(made, lines):
    """Add what the pipeline records when it launches, and a driver's log."""
    logs = made.work.parent / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "worker_0.log").write_text("".join(f"{line}\n" for line in lines))
    (made.work / START_FILE).write_text(json.dumps({**start_record(made), "logs": str(logs)}))
    return logs


@pytest.fixture
def trained(config, model, tmp_path):
    """Prepare grpo, with artifacts of the earlier stages."""
    weights, data = tmp_path / "convert", tmp_path / "tokenize"
    save_checkpoint(weights / "mcore", 1, RANKS, optimizer=False)
    data.mkdir()
    write_data(data / "data", 2)
    made = context(config, tmp_path, "grpo", weights=weights, tokenize=data, fetch=model)
    train.prepare(made)
    return made


def test_a_killed_run_resumes_from_its_last_complete_checkpoint(trained):
    root = trained.work / "checkpoints"
    save_checkpoint(root, 2, RANKS)
    save_checkpoint(root, 4, RANKS[:1], tracker=False)  # the kill came while it was written
    train.prepare(trained)
    values = yaml.safe_load((trained.work / "configs/train.yaml").read_text())
    assert start_record(trained)["resumed"] == 2 and not (root / "iter_0000004").exists()
    assert values["actor_config"]["load"] == str(root) and values["actor_config"]["finetune"] is False
    original = values["rl_config"]["integrated_mode_config"]["ref_model_load_path"]
    assert original == str(trained.work / "models/mcore")


def test_a_run_that_was_killed_after_its_end_is_not_repeated(trained):
    root = trained.work / "checkpoints"
    for iteration in (2, 4):
        save_checkpoint(root, iteration, RANKS)
    train.prepare(trained)  # the last iteration's line was never read: it is trained again
    assert start_record(trained)["resumed"] == 2 and not (root / "iter_0000004").exists()
    save_checkpoint(root, 4, RANKS)
    write_rows(trained.work / "metrics.jsonl", [{"step": 4, "time_s": 1.0, "reward": 0.5}])
    train.prepare(trained)
    assert start_record(trained)["resumed"] == 4
    launch(trained, ["after grpo training is done"])
    train.collect(trained)
    assert result_of(trained)["resumed_from"] == 4


def test_grpo_artifact_does_not_change_without_its_version(trained, tmp_path):
    steps = [[*sample_lines(9, "1+1", f"is {step}", "2"), iteration_line(step, 4)] for step in range(1, 5)]
    logs = launch(trained, [line for lines in steps for line in lines])
    shown: list[tuple[float, float, str]] = []
    watch = train.watch(trained.config, logs, trained.work, lambda *words: shown.append(words))
    for iteration in (2, 4):
        save_checkpoint(trained.work / "checkpoints", iteration, RANKS)
    watch.poll()
    assert [words[:2] for words in shown] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert sorted(path.name for path in (trained.work / "checkpoints").glob("iter_*")) == ["iter_0000004"]
    train.collect(trained)
    expected = {"step": 4, "prompt": "1+1", "completion": "is 4", "solution": "2"}
    assert rows(trained.output / "completions.jsonl")[3] == expected
    names = {path.name for path in (trained.output / "mcore").rglob("*.pt")}
    assert names == {"model_optim_rng.pt"}  # the optimizer stays behind
    assert list((trained.output / "tensorboard").glob("events*"))
    check("mindspeed_rl_grpo/collect", trained.output, tmp_path)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("early", r'"iteration: 4 / 4 \|", the only proof of a finished run, is not in its log'),
        ("no checkpoint", r"latest_checkpointed_iteration\.txt=2: must be new and name iteration 4"),
        ("old checkpoint", "must be new and name iteration 4"),
        ("half a checkpoint", r"is no complete checkpoint: mp_rank_01/model_optim_rng\.pt is missing"),
    ],
)
def test_exit_code_0_is_no_sufficient_proof(trained, case, message):
    lines = [iteration_line(step, 4) for step in range(1, {"early": 3}.get(case, 4) + 1)]
    root = trained.work / "checkpoints"
    save_checkpoint(root, 2, RANKS)
    if case != "no checkpoint":
        save_checkpoint(root, 4, RANKS[:1] if case == "half a checkpoint" else RANKS)
    if case == "old checkpoint":
        write_start(trained.work, Rendered(Start((), 0, None, {}, (), (), (), "")), root, resumed=None)
    launch(trained, lines)
    with pytest.raises(InputError, match=message):
        train.collect(trained)


def test_convert_artifact_does_not_change_without_its_version(config, model, tmp_path):
    made = context(config, tmp_path, "convert", fetch=model)
    convert.prepare(made)
    check("mindspeed_rl_convert/prepare", made.work, tmp_path)
    assert (made.work / "hf/model.safetensors").is_symlink()
    with pytest.raises(InputError, match="must name what the converter wrote"):
        convert.collect(made)
    save_checkpoint(made.work / "mcore", 1, RANKS, optimizer=False)
    convert.collect(made)
    check("mindspeed_rl_convert/collect", made.output, tmp_path)


@pytest.fixture
def exported(config, model, tmp_path):
    save_checkpoint(tmp_path / "grpo" / "mcore", 4, RANKS, optimizer=False)
    made = context(config, tmp_path, "export", grpo=tmp_path / "grpo", fetch=model)
    export.prepare(made)
    return made


@pytest.mark.parametrize("directory", ["mg2hf", "mg2hg"])
def test_export_artifact_does_not_change_without_its_version(exported, model, directory):
    check("mindspeed_rl_export/prepare", exported.work, exported.work.parent)
    original = load_file(model / "model.safetensors")
    changed = {name: (tensor + 1).astype(tensor.dtype) for name, tensor in original.items()}
    (exported.work / "hf" / directory).mkdir()
    save_file(changed, exported.work / "hf" / directory / "model-00001-of-00001.safetensors")
    export.collect(exported)
    result = load_file(exported.output / "model.safetensors")
    assert result.keys() == original.keys()
    for name, tensor in result.items():
        assert tensor.dtype == original[name].dtype
        np.testing.assert_array_equal(tensor, changed[name])
    assert (exported.output / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    files = ("config.json", "generation_config.json")
    before, ids = (json.loads((model / name).read_text()) for name in files)
    assert json.loads((exported.output / "config.json").read_text()) == before | {
        "eos_token_id": ids["eos_token_id"]
    }
    check("mindspeed_rl_export/collect", exported.output, exported.work.parent)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("nothing", "must hold mg2hf/ or mg2hg/ with new safetensors"),
        ("missing", "missing"),
        ("shape", r"\[639, 192\]: the model config asks for \[640, 192\]"),
        ("not finite", "numbers that are not finite"),
    ],
)
def test_a_damaged_result_is_refused(exported, model, damage, message):
    tensors, name = load_file(model / "model.safetensors"), "model.layers.0.mlp.up_proj.weight"
    if damage == "missing":
        del tensors[name]
    elif damage == "shape":
        tensors[name] = np.ascontiguousarray(tensors[name][:-1])
    elif damage == "not finite":
        tensors[name][0, 0] = np.inf
    if damage != "nothing":
        (exported.work / "hf/mg2hf").mkdir()
        save_file(tensors, exported.work / "hf/mg2hf/model.safetensors")
    with pytest.raises(InputError, match=message):
        export.collect(exported)
    assert not (exported.output / "config.json").exists()


@pytest.fixture
def questions(tmp_path):
    """Write rows; the fourth prompt is beyond max_prompt_length."""
    directory = tmp_path / "fetch_dataset"
    directory.mkdir()
    for split, count in (("train", 30), ("test", 10)):
        listed = [{"question": f"{n} + 1 =", "answer": f"Add.\n#### {n + 1}"} for n in range(count)]
        listed[3]["question"] *= 60
        write_rows(directory / f"{split}.jsonl", listed)
    return directory


def tokenizing(config, root, max_bad_share=0.2, **inputs):
    """Return the context of tokenize for `questions`."""
    columns = {"columns": {"prompt": "question", "answer": "answer"}, "train_rows": None}
    dataset = {**columns, "solution": "after_marker", "max_bad_share": max_bad_share}
    return context({**config, "dataset": {**config["dataset"], **dataset}}, root, "tokenize", **inputs)


def test_tokenize_artifact_does_not_change_without_its_version(config, model, questions, tmp_path):
    made = tokenizing(config, tmp_path, fetch=model, fetch_dataset=questions)
    tokenize.prepare(made)
    check("mindspeed_rl_tokenize/prepare", made.work, tmp_path, model)
    values = yaml.safe_load((made.work / "configs/train.yaml").read_text())
    assert Path(values["output_prefix"]).parent.is_dir()  # upstream asks for it
    write_data(made.work / "out/data", 28)
    with pytest.raises(InputError, match="must hold the 29 rows that were given"):
        tokenize.collect(made)
    write_data(made.work / "out/data", 29)
    tokenize.collect(made)
    result = result_of(made)
    assert result["train"] == {"rows": 29, "left_out": 1, "prefix": "data"}
    check("mindspeed_rl_tokenize/collect", made.output, tmp_path)
    sample = result["files"]["test"]["samples"][0]
    assert "Think first, then answer in \\boxed{}." in json.dumps(sample).encode().decode("unicode_escape")


def test_rows_left_out_count_as_bad_and_answers_are_of_any_length(config, model, questions, tmp_path):
    inputs = {"fetch": model, "fetch_dataset": questions}
    (tmp_path / "strict").mkdir()
    with pytest.raises(InputError, match=r"train\.jsonl:4: the prompt of 'question' .*1 of 30 rows"):
        tokenize.prepare(tokenizing(config, tmp_path / "strict", max_bad_share=0.0, **inputs))
    listed = rows(questions / "train.jsonl")
    listed[5]["answer"] = "#### " + "9" * 5000
    write_rows(questions / "train.jsonl", listed)
    made = tokenizing(config, tmp_path, **inputs)
    tokenize.prepare(made)
    assert json.loads((made.work / "train.json").read_text())[4]["answer"] == "9" * 5000


@pytest.mark.parametrize("damage", ["magic", "index", "tokens", "absent"])
def test_a_damaged_data_set_is_refused(tmp_path, damage):
    write_index(tmp_path / "data", [[1, 2, 3], [4], []])
    index, tokens = tmp_path / "data.idx", tmp_path / "data.bin"
    assert tokenize.sequences(index) == 3
    if damage == "magic":
        index.write_bytes(b"X" + index.read_bytes()[1:])
    elif damage == "index":
        index.write_bytes(index.read_bytes()[:-8])
    elif damage == "tokens":
        tokens.write_bytes(tokens.read_bytes()[:-4])
    else:
        tokens.unlink()
    with pytest.raises(InputError, match="complete index"):
        tokenize.sequences(index)
