"""No engine changes bytes, modes, owners or times of the files below model.path.

Every stage around training runs. The embedded trainer is replaced by its untrained result, because it reads
artifacts only (tests/e2e/test_chain.py verifies them after a run); each program by what upstream does to the
directories that it is given: MindSpeed-RL's converter changes the mode of all files below --save-dir, through
links, too (MindSpeed-LLM a2c0733b, tasks/checkpoint/saver.py:537, training.py:82); mindrlhf opens
param_name_map.json next to the weights that it loads for writing (utils.py, convert_index_json_total).
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from pipeline.plan import graph
from stages.__main__ import entry
from stages.base.context import Context
from stages.engines.mindspeed_rl.tokenize import data_files
from stages.engines.outside import START_FILE
from stages.fetch.stage import run as fetch
from tests.stages.engines.mindspeed_rl.jobs import HOME, save_checkpoint, write_index

SIZES = (
    "model.hidden_size=32", "model.num_hidden_layers=1", "model.intermediate_size=64",
    "model.max_position_embeddings=2048",
)  # fmt: skip
COMMON = (
    *SIZES, "dataset.train_rows=16", "dataset.test_rows=4", "train.steps=2", "train.prompts_per_step=8",
    "train.warmup_steps=0", "tokenize.max_prompt_length=200", "rollout.max_tokens=16", "model.source=local",
    "tokenize.sft_length=1000",
    "model.bos_token_id=0", "model.pad_token_id=0", "model.eos_token_id=[1]",
)  # fmt: skip
SINGLE = "layout=dp1_mp1_pp1"
MINDSPEED_RL = (
    SINGLE, "engine=mindspeed_rl", f"engine.mindspeed_rl_home={HOME}", "engine.micro_batch_size=1",
    "train.checkpoint_every=2",
)  # fmt: skip
ENGINES = {
    "local": (SINGLE, "engine=local", "sft.enabled=false"),
    "hf_safetensors": (SINGLE, "engine=mindrlhf", "engine.load_ckpt_format=hf_safetensors"),
    "ms_safetensors": (SINGLE, "engine=mindrlhf", "engine.load_ckpt_format=ms_safetensors"),
    "ckpt": ("engine=mindrlhf", "layout=dp2_mp1_pp1", "engine.load_ckpt_format=ckpt", "engine.use_vllm=0"),
    "one_stage": ("engine=mindrlhf_one_stage", "layout=dp1_mp2_pp1"),
    "mindformers": (SINGLE, "engine=mindrlhf", "engine.sft=mindformers", "mindformers.batch_size=2"),
    "mindspeed_rl": MINDSPEED_RL,
}
WITHOUT_PROGRAM = ("report", "evaluate")
"""Stages that need a trained model and start no program."""


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """Create a user's model directory with different modes and times."""
    root = tmp_path_factory.mktemp("users") / "model"
    root.mkdir()
    config = load([*SIZES]).plain()
    fetch(Context("fetch", config, {}, root, root.parent, root.parent / "progress"))
    for number, file in enumerate(sorted(root.iterdir())):
        os.chmod(file, (0o644, 0o600, 0o664)[number % 3])
        os.utime(file, (1_600_000_000 + number, 1_500_000_000 + number))
    (root / "param_name_map.json").write_text('{"a user": "made it"}\n')
    os.utime(root, (1_600_000_000, 1_500_000_000))
    return root


def state(root):
    """Return mode, owner, time and content of a directory and everything below it, by name."""
    result = {}
    for path in (root, *root.rglob("*")):
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        result[path.relative_to(root)] = stat.st_mode, stat.st_uid, stat.st_gid, stat.st_mtime_ns, content
    return result


def upstream_works(work):
    """Do what programs do to the directories that start.json and the rendered files name."""
    output = json.loads((work / START_FILE).read_text())["start"]
    words = output.get("engine", output)["program"]
    options = dict(itertools.pairwise(words)) | dict(
        word.split("=", 1) for word in words if word.startswith("--") and "=" in word
    )
    if "--save-dir" in options:
        for directory, _, names in os.walk(options["--save-dir"]):  # as update_save_checkpoint_chmod walks
            for name in names:
                os.chmod(os.path.join(directory, name), 0o640)
    loaded = ("--actor_checkpoint_path", "--ref_checkpoint_path", "--generate_checkpoint_path")
    for name in (*loaded, "--load_checkpoint"):
        for directory, _, _ in os.walk(options.get(name) or ""):
            Path(directory, "param_name_map.json").write_text("{}")
    for file in (work / "configs").glob("*.yaml"):
        values = yaml.safe_load(file.read_text())
        if "megatron_training" in values:  # MindSpeed-RL leaves an index beside the data
            Path(values["megatron_training"]["data_path"]).with_name("data_index.npy").touch()


def stages_of(users, tmp_path, *overrides):
    """Run each stage and yield its name; results of programs are made up."""
    config = load([*COMMON, f"model.path={users}", *overrides])
    outputs: dict[str, Path] = {}
    for spec in graph.plan(config, digest=lambda path: "0" * 64).specs:
        actual = spec.stage.program is None and "engine=local" not in overrides
        if spec.name in WITHOUT_PROGRAM or (spec.name == "export" and actual):
            continue
        output, work = outputs.setdefault(spec.name, tmp_path / spec.name), tmp_path / f"{spec.name}-work"
        output.mkdir()
        work.mkdir()
        inputs = {name: outputs.get(key.stage, tmp_path / key.stage) for name, key in spec.inputs.items()}
        context = Context(spec.name, spec.config, inputs, output, work, work / "progress")
        if spec.name == "grpo" and "engine=local" in overrides:
            context.output.rmdir()
            context.output.symlink_to(outputs["split"])
        elif spec.stage.program is None:
            entry(spec.name)(context)
        else:
            entry(f"{spec.stage.program.module}:prepare")(context)
            upstream_works(work)
            made_up(spec.stage.program, context)
        yield spec.name


def made_up(program, context):
    """Write what later stages need from a program that did not run."""
    ranks = ["mp_rank_00"]
    if program.name == "mindspeed_rl_convert":
        save_checkpoint(context.work / "mcore", 1, ranks, optimizer=False)
        entry(f"{program.module}:collect")(context)
    elif program.name == "mindspeed_rl_tokenize":
        for file in data_files(context.work / "out/data"):
            write_index(file.with_suffix(""), [[1]] * 16)
        entry(f"{program.module}:collect")(context)
    elif program.name == "mindspeed_rl_grpo":
        save_checkpoint(context.output / "mcore", 2, ranks, optimizer=False)
    elif program.name == "mindformers":  # what it trained stands in for the fetched model
        for file in context.inputs["fetch"].iterdir():
            (context.output / file.name).symlink_to(file.resolve())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_users_model_is_not_changed(engine, users, tmp_path):
    before, reached = state(users), []
    for stage in stages_of(users, tmp_path, *ENGINES[engine]):
        assert state(users) == before, stage
        reached.append(stage)
    assert "grpo" in reached and ("export" in reached) is (engine in ("mindspeed_rl", "local"))
    assert ("sft" in reached) is (engine == "mindformers")
