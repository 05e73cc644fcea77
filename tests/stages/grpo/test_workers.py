"""The whole stage on several workers under msrun, against the same stage in one process."""

import json
import shutil

import numpy as np
import pytest

from launch.process import job
from pipeline.config.load import load as compose
from pipeline.plan import graph
from stages.__main__ import main
from stages.grpo.config import early_slots, shares_rows
from stages.weights.tensors import merge_ranks

SMALL = [
    "model.hidden_size=32", "model.num_hidden_layers=1", "model.intermediate_size=48",
    "model.initializer_range=0.2", "model.rope_theta=10000", "dataset.train_rows=64", "dataset.test_rows=8",
    "rollout.num_generations=4", "rollout.max_tokens=12", "train.prompts_per_step=4", "train.steps=3",
    "train.warmup_steps=0", "train.learning_rate=0.01", "train.beta=0.1", "train.checkpoint_every=1",
    "train.adam_epsilon=1e-4",  # else the last bits of a tiny gradient, which differ by CPU, decide its sign
    "train.logged_completions=16", "reward.weights=[1,0.1,1]", "sft.enabled=false",
    "reward.functions=[accuracy,answer_format,tests.stages.grpo.test_workers:shortness]",
]  # fmt: skip
SINGLE_CARD = [
    "layout.train.model_parallel=1", "layout.generate.data_parallel=1", "layout.generate.model_parallel=1",
]  # fmt: skip
DATA2 = ["layout.train.data_parallel=2", "layout.train.model_parallel=1"]
DATA2_MODEL2 = [
    "layout.train.data_parallel=2", "layout.train.model_parallel=2", "layout.generate.model_parallel=2",
]  # fmt: skip
GENERATE_MODEL2 = ["layout.generate.data_parallel=1", "layout.generate.model_parallel=2"]
SEVERAL = ["train.num_iterations=2"]
"""Several updates per rollout, so that old log-probabilities count."""
NORMED = [
    *SEVERAL, "model=tiny_qwen3",
    "reward.functions=[accuracy,answer_format,tests.stages.grpo.test_workers:ranks]",
]  # fmt: skip
"""Each card norms its own heads with weights that all share; a reward compares all completions of a step."""
LONG = [
    *SEVERAL, "rollout.max_tokens=256", "train.steps=2", "train.learning_rate=1e-4",
    "reward.functions=[accuracy,answer_format,tests.stages.grpo.test_workers:ranks]",
]  # fmt: skip
"""Completions of a prompt share rows of attention; their first tokens are decoded with smaller caches."""


def shortness(completions, solutions):
    """A reward that random weights earn differently from one completion to the next."""
    return [len(completion) / 20 for completion in completions]


def ranks(completions, solutions):
    """A reward by rank among all completions of a step."""
    assert len(completions) == 16
    order = sorted(completions, key=lambda text: (len(text), text))
    return [order.index(completion) / len(order) for completion in completions]


def run(root, stage, config):
    """Run one stage of `config` below `root`, as the pipeline would; its output's path."""
    (entry,) = (entry for entry in graph.stages(config) if entry.name == stage)
    output, work, logs, plain = root / stage, root / "work" / stage, root / "logs", config.plain()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    work.mkdir(parents=True, exist_ok=True)
    spec = {
        "stage": stage, "config": {name: plain[name] for name in entry.sections},
        "inputs": {name: str(root / source) for name, source in entry.inputs.items()}, "output": str(output),
        "work": str(work), "progress_file": str(root / "progress.jsonl"),
    }  # fmt: skip
    file = root / f"{stage}.json"
    file.write_text(json.dumps(spec), encoding="utf-8")
    if stage == "grpo":
        logs.mkdir(exist_ok=True)
        program = ["-m", "stages", stage, str(file)]
        job.run(program, workers=entry.workers, job=str(root), log_dir=logs, launcher=config.launcher)
    else:
        assert main([stage, str(file)]) == 0
    return output


def prepare(root, overrides):
    """The config, and all that sft and grpo read."""
    config = compose(overrides)
    root.mkdir(exist_ok=True)
    for stage in ("fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split"):
        run(root, stage, config)
    return config


@pytest.fixture(scope="module")
def single_card(tmp_path_factory):
    """The run on a single card, in micro-batches: metrics rows and trained weights."""
    return trained(tmp_path_factory.mktemp("one"), [*SINGLE_CARD, *NORMED, "layout.train.micro_batch_num=2"])


@pytest.fixture(scope="module")
def model_parallel(tmp_path_factory):
    """mp2 for training, dp2 for generating: the directory of the run, and what came of it."""
    root = tmp_path_factory.mktemp("model_parallel")
    return root, trained(root, NORMED)


def trained(root, overrides):
    config = prepare(root, [*SMALL, *overrides])
    output = run(root, "grpo", config)
    weights = merge_ranks(output / "train", root / "strategy" / "train_strategy")
    return metrics(output), weights, metrics(output, "completions.jsonl")


def metrics(output, name="metrics.jsonl"):
    return [json.loads(line) for line in (output / name).read_text(encoding="utf-8").splitlines()]


KEYS = ("reward", "reward_stderr", "loss", "kl", "kl_stderr", "entropy", "grad_norm", "completion_length")


def assert_same_training(actual, expected):
    for row, second in zip(actual[0], expected[0], strict=True):
        for key in KEYS:
            message = f"{key}, step {row['step']}"
            np.testing.assert_allclose(row[key], second[key], rtol=2e-4, atol=2e-5, err_msg=message)
    for name, array in expected[1].items():
        np.testing.assert_allclose(actual[1][name], array, atol=2e-4, err_msg=name)
    first = [[row["completion"] for row in side[2] if row["step"] == 1] for side in (actual, expected)]
    assert first[0] == first[1] and len(set(first[1])) > 12  # of 16: sampled alike, word for word


@pytest.mark.slow
def test_tensor_parallel_training_equals_a_single_card(single_card, model_parallel):
    assert_same_training(model_parallel[1], single_card)
    first = single_card[0][0]
    assert first["reward_std"] > 0 and first["grad_norm"] > 0  # there was something to learn


@pytest.mark.long
def test_a_checkpoint_of_two_cards_resumes_on_a_single_card(model_parallel, tmp_path):
    root, (rows, weights, *_) = model_parallel
    checkpoint = root / "work/grpo/checkpoints/step_000002"
    config = prepare(tmp_path, [*SMALL, *SINGLE_CARD, *NORMED, f"train.resume_from={checkpoint}"])
    output = run(tmp_path, "grpo", config)
    (row,) = metrics(output)
    for key in ("reward", "loss", "kl", "kl_stderr", "entropy", "entropy_stderr", "grad_norm"):
        assert row[key] == pytest.approx(rows[2][key], rel=1e-5, abs=1e-5), key
    single = merge_ranks(output / "train", tmp_path / "strategy" / "train_strategy")
    for name, array in weights.items():
        np.testing.assert_allclose(single[name], array, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.long
def test_data_parallel_training_and_tensor_parallel_generation_equal_a_single_card(single_card, tmp_path):
    assert_same_training(trained(tmp_path, [*DATA2, *GENERATE_MODEL2, *NORMED]), single_card)


@pytest.mark.long
def test_completions_that_share_rows_on_two_cards_equal_a_single_card(tmp_path):
    config = compose([*SMALL, *LONG])
    T = config.rollout.max_tokens
    assert shares_rows(config.tokenize.max_prompt_length, config.rollout.num_generations, T)
    assert early_slots(T) < T
    single = trained(tmp_path / "one", [*SINGLE_CARD, *LONG])
    lengths = {row["length"] for row in single[2]}
    assert len(lengths) > 1, "completions of one length would all fill a row"
    for name, layout in (("data", DATA2), ("model", [])):
        assert_same_training(trained(tmp_path / name, [*layout, *LONG]), single)


@pytest.mark.long
@pytest.mark.parametrize("model", ["tiny", "tiny_llama"])
def test_further_families_on_four_cards_equal_a_single_card(tmp_path, model):
    single = trained(tmp_path / "one", [*SINGLE_CARD, *SEVERAL, f"model={model}"])
    assert_same_training(trained(tmp_path / "four", [*DATA2_MODEL2, *SEVERAL, f"model={model}"]), single)
