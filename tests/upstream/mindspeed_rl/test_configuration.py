"""Upstream's validation accepts every configuration that the engine accepts: all sizes, cards and layouts.

stages/engines/mindspeed_rl/rehearsal/validate.py runs Hydra's composition, parse_training_config with
validate_rl_args, and Megatron's validate_args inside initialize_megatron.
"""

import itertools
import math
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.errors import ConfigError
from pipeline.plan.layouts import find
from stages.engines.mindspeed_rl import contract
from stages.engines.mindspeed_rl.files import train_config
from stages.engines.mindspeed_rl.job import Job, Paths, paths_of
from stages.engines.mindspeed_rl.rehearsal.cpu import validate
from stages.engines.outside import dump
from tests.stages.engines.mindspeed_rl.jobs import HOME, SEVEN

pytestmark = pytest.mark.upstream
SIZES = ("0_5b", "1_5b", "3b", "7b", "14b", "32b", "72b")
CARDS = (1, 8, 16, 24, 64)
VARIED = "14b"
"""The size whose layouts are tried with VARIANTS, since every set of options needs a process of its own."""
VARIANTS = (  # one for each number of cards
    ("layout.train.recompute=true", "engine.micro_batch_size=1"),
    ("layout.train.select_recompute=true", "layout.train.enable_parallel_optimizer=false"),
    ("train.num_iterations=2",),
    ("engine.use_integrated_worker=false", "train.schedule=cosine", "train.warmup_steps=10"),
    ("layout.train.use_seq_parallel=false", "engine.mini_batch_size=96", "train.max_grad_norm=null"),
)
WITHOUT_PATCHES = {
    "finetune", "no_load_optim", "no_load_rng",
    "untie_embeddings_and_output_weights", "clip_grad", "lr_warmup_fraction",
}  # fmt: skip
"""Options by which MindSpeed chooses no patches: configurations that differ in them can share a process."""


DEGREES = ("tensor_model", "pipeline_model", "context")  # the last one is never rendered: upstream says 1


def jobs(*overrides):
    """Return the jobs of every layout that the engine accepts; `grpoflow layouts` lists the same."""
    fixed = ["engine=mindspeed_rl", "model.path=/models/qwen"]
    batch = ["train.prompts_per_step=384", "launcher.cards_per_node=64"]
    try:
        choices, _ = find([*fixed, *batch, *overrides])
    except ConfigError:
        return []
    return [Job.from_run(choice.config) for choice in choices]


def write(directory, job, tokenizer, resume):
    values = train_config(job, Paths(directory, tokenizer, paths_of(directory).weights), resume)
    directory.mkdir(parents=True)
    (directory / "train.yaml").write_text(dump(values, job.engine.upstream))
    return values


def expected(values):
    """Return Megatron's arguments for each role, computed from the file alone."""
    training, rl, result = values["megatron_training"], values["rl_config"], {}
    network = values["model"][training["model"]]
    for role, resource in (("actor", "actor"), ("ref", "reference")):
        if (config := values.get(f"{role}_config")) is None:
            continue
        degrees = {f"{name}_parallel_size": config.get(f"{name}_parallel_size", 1) for name in DEGREES}
        cards = rl[f"{resource}_resource"]["num_npus"]
        result[role] = {
            "world_size": cards,
            "data_parallel_size": cards // math.prod(degrees.values()),
            **degrees,
            **{name: network[name] for name in ("num_layers", "padded_vocab_size", "num_query_groups")},
            **{
                name: training[name]
                for name in ("seq_length", "sequence_parallel", "use_distributed_optimizer")
            },
            "recompute_granularity": training.get("recompute_granularity"),
        }
    return result


def assert_accepted(answer, values):
    actor = values["actor_config"]
    assert answer.get("error") is None, f"{actor}\n{answer['error']}"
    assert {role: answer["roles"][role] for role in expected(values)} == expected(values), actor


def validate_all(upstream, rendered):
    """Return upstream's verdict on many files: directory -> answer, two processes at a time."""
    groups = defaultdict(list)
    for directory, values in rendered.items():
        options = {**values["megatron_training"], **values["actor_config"]}
        options |= values["model"][options["model"]]
        set_options = {name for name, value in options.items() if value not in (None, False)}
        groups[frozenset(set_options - WITHOUT_PATCHES)].append(directory)
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(
            lambda group: validate(upstream.python, upstream.home, group, 1, {}), groups.values()
        )
        return dict(zip(itertools.chain(*groups.values()), itertools.chain(*answers), strict=True))


@pytest.mark.core
def test_it_accepts_a_shipped_size_and_refuses_faults(upstream, tmp_path):
    (job,) = jobs(*SEVEN)
    faults = {
        "no_such_key": ("rl_config", "no_such_key", 1),
        "must be divisible by": ("actor_config", "tensor_model_parallel_size", 3),
        "Sequence length exceeds vLLM max_model_len": ("generate_config", "max_model_len", 128),
    }
    right = write(tmp_path / "right", job, tmp_path, resume=False)
    directories = [tmp_path / "right"]
    for number, (section, key, value) in enumerate(faults.values()):
        directories.append(tmp_path / str(number))
        values = write(directories[-1], job, tmp_path, resume=False)
        values[section][key] = value
        (directories[-1] / "train.yaml").write_text(dump(values))
    accepted, *refused = validate(upstream.python, upstream.home, directories, 1, {})
    assert_accepted(accepted, right)
    for message, answer in zip(faults, refused, strict=True):
        assert message in answer["error"]


@pytest.mark.core
def test_the_mock_has_the_keys_of_upstreams_classes(upstream):
    assert contract.schema(str(HOME)) == contract.schema(str(upstream.home))


@pytest.mark.core
def test_it_reads_and_checks_keys_of_engine_upstream(upstream, tmp_path):
    keys = ("rl_config.entropy_coeff=0.01", "actor_config.num_workers=3", "rl_config.no_such_key=1")
    for number, key in enumerate(keys):
        (job,) = jobs(*SEVEN, f"+engine.upstream.{key}")
        values = write(tmp_path / str(number), job, tmp_path, resume=False)
    directories = [tmp_path / str(number) for number in range(len(keys))]
    *accepted, refused = validate(upstream.python, upstream.home, directories, 1, {})
    for answer in accepted:
        assert_accepted(answer, values)
    assert "unknown keys, which this version skips with a warning: rl_config.no_such_key" in refused["error"]


@pytest.mark.timeout(1500)
def test_it_accepts_every_size_and_layout_that_the_engine_accepts(upstream, tmp_path):
    accepted_jobs = []
    for size, (cards, variant) in itertools.product(SIZES, zip(CARDS, VARIANTS, strict=True)):
        options = variant if size == VARIED else ()
        accepted_jobs += jobs(f"model=qwen2_5_{size}", f"cards={cards}", *options)
    assert len(accepted_jobs) > 100
    rendered = {
        tmp_path / str(number): write(tmp_path / str(number), job, tmp_path, resume=number % 2 == 1)
        for number, job in enumerate(accepted_jobs)
    }
    for directory, answer in validate_all(upstream, rendered).items():
        assert_accepted(answer, rendered[directory])
