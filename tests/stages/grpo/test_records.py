"""A logged step's numbers computed again from its files, and the same files after a kill."""

import functools
import json
import shutil

import numpy as np
import pytest

from stages.grpo.data import Vocabulary
from stages.grpo.records import ARRAYS
from tests.stages.grpo.test_workers import SINGLE_CARD, SMALL, metrics, prepare, run, shortness

REWARDS = ("accuracy", "answer_format", "tests.stages.grpo.test_workers:shortness")
VARIANTS = {
    "two iterations": [
        "train.num_iterations=2", "train.schedule=linear", "train.final_share=0", "train.loss_type=grpo",
        "train.epsilon_high=0.3", "train.use_bias_correction_kl=true", "rollout.temperature=0.8",
        "train.validate_every=1", "train.validation_prompts=4", "train.keep_best=true",
    ],
    "dynamic sampling, one ratio per completion": [
        "train.resample_rounds=2", "train.mask_truncated_completions=true", "train.scale_advantages=false",
        "train.loss_type=dr_grpo", "rollout.num_generations=3", "rollout.top_k=20",
        "reward.functions=[tests.stages.grpo.test_records:sometimes]", "reward.weights=[1.1]",
        "train.num_iterations=2", "train.importance_sampling_level=sequence", "train.epsilon_low=3e-4",
        "train.epsilon_high=4e-4", "train.beta=0", "train.completions_every=2",
    ],
}  # fmt: skip


def sometimes(completions, solutions):
    """Equal rewards for groups of long completions; the number 1.1 is not exact in binary."""
    return [1.0 if len(item) < 20 else 0.0 for item in completions]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a function from a variant to the configuration of its run, its artifact and its directory."""

    @functools.cache
    def of(variant):
        root = tmp_path_factory.mktemp("run")
        config = prepare(root, [*SMALL, *SINGLE_CARD, *VARIANTS[variant]])
        return config, run(root, "grpo", config), root

    return of


def read(output):
    """Arrays of each logged step, by step."""
    files = sorted((output / "completions").iterdir())
    assert [file.name for file in files] == sorted(f"step_{int(file.stem[5:]):06d}.npz" for file in files)
    return {int(file.stem[5:]): dict(np.load(file, allow_pickle=False)) for file in files}


def wide(array):
    return array.astype(np.float64)


def recompute(config, step):
    """Reward, advantages, KL, loss and clipped shares of a step from its arrays, in float64."""
    train, G = config.train, config.rollout.num_generations
    trained = step["trained"]
    weights = dict(zip(config.reward.functions, config.reward.weights, strict=True))
    rewards = sum(weight * wide(step[f"rewards/{name}"]) for name, weight in weights.items())
    grouped = rewards[trained].reshape(-1, G)
    advantages = grouped - grouped.mean(1, keepdims=True)
    equal = np.ptp(step["rewards"][trained].reshape(-1, G), axis=1) == 0
    if train.scale_advantages:
        advantages /= grouped.std(1, ddof=1, keepdims=True) + 1e-4
    advantages[equal] = 0
    lengths = step["completion_lengths"][trained]
    mask = (np.arange(step["completion_ids"].shape[1]) < lengths[:, None]).astype(float)
    if train.mask_truncated_completions:
        mask[step["truncated"][trained]] = 0
    sampling = wide(step["sampling_logprobs"][trained])
    policy = wide(step["policy_logprobs"][trained]) if train.num_iterations > 1 else sampling
    left_out = np.isnan(sampling).any(1)
    assert ((advantages.reshape(-1) == 0) | ~mask.any(1))[left_out].all()
    assert train.beta == 0 or not left_out.any()
    log_ratio = np.nan_to_num(policy - sampling) * mask
    if train.importance_sampling_level == "sequence":
        log_ratio = log_ratio.sum(1, keepdims=True) / np.maximum(mask.sum(1, keepdims=True), 1)
    ratio, advantage = np.exp(log_ratio), advantages.reshape(-1, 1)
    low, high = 1 - train.epsilon_low, 1 + train.epsilon_high
    clipped = [(ratio < low) & (advantage < 0), (ratio > high) & (advantage > 0)]
    bounded = np.clip(ratio, low, high)
    loss = -np.minimum(ratio * advantage, bounded * advantage) * np.ones_like(mask)
    kl = np.zeros_like(mask)
    if train.beta > 0:
        difference = (wide(step["reference_logprobs"][trained]) - policy) * mask
        kl = np.exp(difference) - difference - 1
        loss += train.beta * kl * (ratio if train.use_bias_correction_kl else 1)
    loss = {
        "grpo": lambda: ((loss * mask).sum(1) / np.maximum(mask.sum(1), 1)).mean(),
        "dapo": lambda: (loss * mask).sum() / max(mask.sum(), 1),
        "dr_grpo": lambda: (loss * mask).sum() / (len(mask) * config.rollout.max_tokens),
    }[train.loss_type]()
    count = max(mask.sum(), 1)
    shares = [(item * mask).sum() / count for item in clipped]
    return rewards, advantages.reshape(-1), kl.sum() / count, loss, shares


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_is_computed_again_from_its_file(variant, finished):
    config, output, _ = finished(variant)
    rows, steps = {row["step"]: row for row in metrics(output)}, read(output)
    every = config.train.completions_every
    assert list(steps) == [step for step in rows if step % every == 0]
    most = 0.0
    for number, step in steps.items():
        rewards, advantages, kl, loss, clipped = recompute(config, step)
        row = rows[number]
        np.testing.assert_allclose(step["rewards"], rewards, rtol=1e-6, atol=1e-6)
        assert row["reward"] == pytest.approx(rewards.mean(), rel=1e-6, abs=1e-7)
        np.testing.assert_allclose(step["advantages"][step["trained"]], advantages, rtol=1e-3, atol=1e-4)
        assert np.isnan(step["advantages"][~step["trained"]]).all()
        assert row["loss"] == pytest.approx(loss, rel=1e-4, abs=2e-6)
        assert row.get("kl", 0) == pytest.approx(kl, rel=1e-4, abs=1e-7)
        shown = [row[f"clip_{side}_fraction"] for side in ("low", "high")]
        assert shown == pytest.approx(clipped, abs=0.02)  # rounding may decide for a token
        most = max(most, *clipped)
        assert row["completion_length"] == pytest.approx(step["completion_lengths"].mean())
        assert row["completion_cut_share"] == pytest.approx(step["truncated"].mean())
        grouped = step["rewards"].reshape(-1, config.rollout.num_generations)
        assert row["zero_variance_share"] == pytest.approx((np.ptp(grouped, axis=1) == 0).mean())
        assert len(step["trained"]) == row["sampled_groups"] * config.rollout.num_generations
    assert most > 0.05 or variant != "two iterations"  # else nothing is compared


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_file_holds_the_documented_arrays_and_the_completions_that_are_shown(variant, finished):
    config, output, root = finished(variant)
    vocabulary = Vocabulary.read(root / "fetch", config.model)
    shown = metrics(output, "completions.jsonl")
    metrics_of = {row["step"]: row for row in metrics(output)}
    for number, step in read(output).items():
        documented = {name if "rewards/" not in name else "rewards/*" for name in step}
        assert documented <= ARRAYS.keys()
        assert ("policy_logprobs" in step) == (config.train.num_iterations > 1)
        assert ("reference_logprobs" in step) == (config.train.beta > 0)
        texts = vocabulary.texts(step["completion_ids"], step["completion_lengths"])
        rows = [row for row in shown if row["step"] == number]
        assert len(rows) == min(config.train.logged_completions, len(texts))
        for index, row in enumerate(rows):
            assert row["completion"] == texts[index]
            assert row["length"] == step["completion_lengths"][index]
            assert row["reward"] == pytest.approx(float(step["rewards"][index]))
            assert (
                row["cut"] == step["truncated"][index]
                and (row["advantage"] is None) != step["trained"][index]
            )
            if row["advantage"] is not None:
                assert row["advantage"] == pytest.approx(float(step["advantages"][index]))
            for name, value in row["parts"].items():
                assert value == pytest.approx(float(step[f"rewards/{name}"][index]))
        if f"rewards/{REWARDS[2]}" in step:
            np.testing.assert_allclose(step[f"rewards/{REWARDS[2]}"], shortness(texts, None), rtol=1e-6)
        logprobs = step["sampling_logprobs"][step["trained"]]
        padding = np.arange(logprobs.shape[1]) >= step["completion_lengths"][step["trained"], None]
        computed = ~padding & ~np.isnan(logprobs[:, :1])
        assert (logprobs[padding] == 0).all() and (logprobs[computed] < 0).all()
        skipped = metrics_of[number].get("skipped_completions", 0)
        assert np.isnan(logprobs[:, 0]).sum() == skipped


@pytest.mark.slow
def test_the_files_are_equal_byte_by_byte_after_a_resume(finished, tmp_path):
    """A random model's completions are not ASCII, and its first check is never beaten."""
    config, output, root = finished("two iterations")
    before, rates = files(output), [row["lr"] for row in metrics(output)]
    assert not before["completions.jsonl"].isascii() and len(before) == 4
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    work = tmp_path / "work" / "grpo"
    for checkpoint in work.glob("checkpoints/step_00000[23]"):  # as if it had been killed in step 2
        checkpoint.rename(checkpoint.with_name(f"lost_{checkpoint.name}"))
    (work / "completions" / ".step_000002.npz").write_bytes(b"half")
    (work / "completions" / "step_000003.npz").write_bytes(b"PK")
    again = run(tmp_path, "grpo", config)
    result = json.loads((again / "result.json").read_text())
    assert (result["resumed_from"], result["best_step"], result["weights_of_step"]) == (1, 0, 0)
    assert files(again) == before
    assert [row["lr"] for row in metrics(again)] == rates
    assert rates == pytest.approx([config.train.learning_rate * (1 - done / 5) for done in (1, 3, 5)])


def files(output):
    """The logged completions' files by name."""
    actual = [output / "completions.jsonl", *(output / "completions").iterdir()]
    return {file.name: file.read_bytes() for file in actual}
