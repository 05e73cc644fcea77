"""Upstream's validation accepts every configuration that the engine accepts: all sizes, cards and layouts.

Hydra's composition, parse_training_config with validate_rl_args, and Megatron's validate_args inside
initialize_megatron, as stages/engines/mindspeed_rl/rehearsal/validate.py calls them.
"""

import itertools

import pytest
import yaml

from pipeline.errors import ConfigError
from pipeline.plan.layouts import find
from stages.engines.mindspeed_rl import engine
from stages.engines.mindspeed_rl.job import Paths
from stages.engines.mindspeed_rl.rehearsal.validation import validate
from stages.engines.mindspeed_rl.train import paths_of
from stages.engines.mindspeed_rl.train_yaml import train_config
from stages.engines.outside import dump

pytestmark = pytest.mark.upstream
SIZES = ("0_5b", "1_5b", "3b", "7b", "14b", "32b", "72b")
CARDS = (1, 8, 16, 24, 64)
VARIED = "14b"
"""The size whose layouts are tried with VARIANTS: each option costs seconds, for MindSpeed patches anew."""
VARIANTS = (  # one for each number of cards
    ("layout.train.recompute=true", "engine.micro_batch_size=1"),
    ("layout.train.select_recompute=true", "layout.train.enable_parallel_optimizer=false"),
    ("engine.use_remove_padding=true", "layout.train.opt_offload=true"),
    ("engine.use_integrated_worker=false", "train.schedule=cosine", "train.warmup_steps=10"),
    ("layout.train.use_seq_parallel=false", "engine.mini_batch_size=96", "train.max_grad_norm=null"),
)


OTHERWISE = {
    "attention_bias",  # its default
    "use_rotary_position_embeddings",  # position_embedding_type says it, too
    "no_gradient_accumulation_fusion", "use_fused_moe_token_permute_and_unpermute", "spec",  # which kernels
}  # fmt: skip
"""Keys of some of its model files alone, which we do not write. What is wide beside experts is nowhere."""


def jobs(version, *overrides):
    """Of every layout that the engine accepts; `grpoflow layouts` lists the same."""
    fixed = ["engine=mindspeed_rl", "model.path=/models/qwen", f"engine.contract={version}"]
    batch = ["train.prompts_per_step=384", "launcher.cards_per_node=64"]
    try:
        found, _ = find([*fixed, *batch, *overrides])
    except ConfigError:
        return []
    return [engine.job(choice.config) for choice in found]


def write(directory, job, tokenizer, resume):
    root = paths_of(directory)
    paths = Paths(root.root, tokenizer, root.weights)
    values = train_config(job, paths, resume)
    directory.mkdir(parents=True)
    (directory / "train.yaml").write_text(dump(values))
    return values


def expected(values):
    """What Megatron must have made of each role, counted from the file alone."""
    network = values["model"][values["megatron_training"]["model"]]
    found = {}
    for role in ("actor", "ref"):
        if f"{role}_config" not in values:
            continue
        cut, resource = values[f"{role}_config"], "actor" if role == "actor" else "reference"
        cards = values["rl_config"][f"{resource}_resource"]["num_npus"]
        parts = cut["tensor_model_parallel_size"], cut["pipeline_model_parallel_size"]
        context = cut.get("context_parallel_size", 1)
        found[role] = {
            "world_size": cards,
            "data_parallel_size": cards // (parts[0] * parts[1] * context),
            "num_layers": network["num_layers"],
            "seq_length": values["megatron_training"]["seq_length"],
            "tensor_model_parallel_size": parts[0],
            "pipeline_model_parallel_size": parts[1],
            "context_parallel_size": context,
            "padded_vocab_size": network["padded_vocab_size"],
            "num_query_groups": network["num_query_groups"],
            "sequence_parallel": values["megatron_training"]["sequence_parallel"],
            "use_distributed_optimizer": values["megatron_training"]["use_distributed_optimizer"],
            "recompute_granularity": values["megatron_training"].get("recompute_granularity"),
        }
    return found


def assert_accepted(answer, values):
    """Upstream accepts a file, and makes of it what it says."""
    assert answer.get("error") is None, f"{values['actor_config']}\n{answer['error']}"
    assert {role: answer["roles"][role] for role in expected(values)} == expected(values), values[
        "actor_config"
    ]


@pytest.mark.core
def test_it_accepts_its_own_size_and_tells_what_it_refuses(window, tmp_path):
    (job,) = jobs(
        window.version, "model=qwen2_5_7b", "layout=dp4_mp2_pp2", "layout.generate.model_parallel=1"
    )
    own = write(tmp_path / "own", job, tmp_path, resume=False)
    wrong = {
        "key": ("rl_config", "no_such_key", 1),
        "cards": ("actor_config", "tensor_model_parallel_size", 3),
        "length": ("generate_config", "max_model_len", 128),
    }
    for name, (section, key, value) in wrong.items():
        values = write(tmp_path / name, job, tmp_path, resume=False)
        values[section][key] = value
        (tmp_path / name / "train.yaml").write_text(dump(values))
    told = validate(window.python, window.home, [tmp_path / name for name in ("own", *wrong)], nodes=1)
    assert_accepted(told[str(tmp_path / "own")], own)
    said = {name: told[str(tmp_path / name)]["error"] for name in wrong}
    assert "no_such_key" in said["key"]
    assert "must be divisible by" in said["cards"]
    assert "Sequence length exceeds vLLM max_model_len" in said["length"]


@pytest.mark.parametrize("size", ["8b", "32b", "30b_a3b", "235b_a22b"])
def test_it_accepts_qwen3_as_its_own_model_files_describe_it(newest, size, tmp_path):
    (job,) = jobs(newest.version, f"model=qwen3_{size}", "layout=dp4_mp2_pp2")
    values = write(tmp_path / "own", job, tmp_path, resume=False)
    assert_accepted(
        validate(newest.python, newest.home, [tmp_path / "own"], nodes=1)[str(tmp_path / "own")], values
    )
    file = newest.home / f"configs/model/qwen3_{size}.yaml"
    (theirs,) = yaml.safe_load(file.read_text(encoding="utf-8")).values()
    ours = values["model"][f"qwen3_{size}"]
    compared = theirs.keys() - OTHERWISE - ({"ffn_hidden_size"} if "num_experts" in theirs else set())
    theirs |= {
        key: float(theirs[key]) for key in ("norm_epsilon",) if key in theirs
    }  # YAML takes it for a word
    assert {key: theirs[key] for key in compared} == {key: ours.get(key) for key in compared}


@pytest.mark.timeout(1500)
def test_it_accepts_every_size_and_layout_that_the_engine_accepts(window, tmp_path):
    given = []
    for size, (cards, variant) in itertools.product(SIZES, zip(CARDS, VARIANTS, strict=True)):
        options = variant if size == VARIED else ()
        given += jobs(window.version, f"model=qwen2_5_{size}", f"cards={cards}", *options)
    assert len(given) > 100
    rendered = {
        tmp_path / str(number): write(tmp_path / str(number), job, tmp_path, resume=number % 2 == 1)
        for number, job in enumerate(given)
    }
    told = validate(window.python, window.home, list(rendered), nodes=1)
    for place, values in rendered.items():
        assert_accepted(told[str(place)], values)
