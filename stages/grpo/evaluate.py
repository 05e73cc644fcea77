"""The evaluate stage: accuracy on held-out prompts with the weights before and after grpo.

Both models run through the same compiled graphs; only the weights change between them. A batch holds as
many completions whether they are greedy, one of each prompt, or samples, several that share their prompt.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.checks import demand
from stages.base.context import Context
from stages.grpo.columns import dataset_columns
from stages.grpo.config import EvaluateConfig, RolloutConfig
from stages.grpo.data import Prompts, Vocabulary, read_prompts
from stages.grpo.model import CausalLM
from stages.grpo.parameters import fuse
from stages.grpo.rollout import Decoder
from stages.grpo.rules import evaluate_problems
from stages.grpo.sampling import uniforms
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.judge import are_right, warn_of_words
from stages.rewards.score import RewardScores, check_failures, prepare, score
from stages.weights.dtypes import Array
from stages.weights.names import renamed
from stages.weights.sources import open_directory
from stages.weights.tensors import merge_ranks
from stages.weights.transfer import read_tensor


@dataclass(frozen=True)
class Answers:
    """One model's completions of the held-out prompts."""

    texts: list[str]
    """Greedy, one per prompt."""
    right: NDArray[np.bool_]
    """Correctness of each answer [prompts]."""
    rewards: RewardScores
    """Total and parts of each [prompts]."""
    sampled_right: NDArray[np.bool_]
    """Correctness of each sampled completion [sample_prompts, num_samples]."""


def run(context: Context) -> None:
    """Evaluate both models and write result.json and samples.jsonl.

    Raises:
        ConfigError: pass@k cannot be estimated from the samples that are drawn.
        InputError: weights or data are missing or do not fit.
    """
    shape, config = context.section(ModelConfig, "model"), context.section(EvaluateConfig, "evaluate")
    demand(evaluate_problems(config))
    rollout, reward = context.section(RolloutConfig, "rollout"), context.section(RewardConfig, "reward")
    vocabulary = Vocabulary.read(context.inputs["fetch"], shape)
    accepted = prepare(reward)
    records = context.inputs["tokenize"] / "test.mindrecord"
    prompts = read_prompts(records, vocabulary)
    prompts = dataclasses.replace(prompts, columns=dataset_columns(context, records, len(prompts), accepted))
    prompts = prompts.take(range(min(len(prompts), config.num_prompts or len(prompts))))
    warn_of_words(context, reward, prompts.solutions)
    S = prompts.ids.shape[1]
    model = CausalLM(shape, positions=S + rollout.max_tokens)
    greedy = Decoder(model, rollout, min(config.batch_prompts, len(prompts)), 1, S, vocabulary.special)
    sampling = None
    if sampled := min(config.sample_prompts, len(prompts)):
        batch = min(max(1, config.batch_prompts // config.num_samples), sampled)
        sampling = Decoder(model, rollout, batch, config.num_samples, S, vocabulary.special)
    answers = {}
    for number, name in enumerate(("before", "after")):
        model.load(fuse(shape, weights(context.inputs[name], context.inputs.get("strategy"), shape)))
        answers[name] = answer(greedy, sampling, prompts, vocabulary, config, reward, context.seed)
        for function, message in answers[name].rewards.single.items():
            rule = "scored one by one, because the call with all answers failed"
            context.warn(f"reward {function}: {rule}: {message}")
        context.progress(number + 1, 2, f"{name}: accuracy {answers[name].right.mean():.3f}", "models")
    result = summary(answers["before"], answers["after"], config.k)
    context.write_result(result)
    rows = samples(prompts, answers["before"], answers["after"], config.logged_samples)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (context.output / "samples.jsonl").write_text(text, encoding="utf-8")


def weights(artifact: Path, strategies: Path | None, shape: ModelConfig) -> dict[str, Array]:
    """Read the full parameters of an artifact: rank directories in train/, or a Hugging Face directory."""
    if strategies is not None and (artifact / "train").is_dir():
        return merge_ranks(artifact / "train", strategies / "train_strategy")
    tensors = renamed(open_directory(artifact), shape, artifact)
    return {name: read_tensor(tensor) for name, tensor in tensors.items()}


def answer(
    greedy: Decoder, sampling: Decoder | None, prompts: Prompts, vocabulary: Vocabulary,
    config: EvaluateConfig, reward: RewardConfig, seed: int,
) -> Answers:  # fmt: skip
    """Complete all prompts greedily and the first ones by sampling, and score the completions."""
    texts, tokens = complete(greedy, prompts, vocabulary, None)
    read = prompts.continued(texts)
    scores = score(reward, read, prompts.solutions, tokens, prompts.arguments(1))
    allowed = reward.max_failures
    if allowed is not None:  # the limit is meant for one training step
        reward = dataclasses.replace(reward, max_failures=max(allowed, len(texts) // 10))
    check_failures(reward, scores, len(texts), "held-out prompts")
    right = np.array(are_right(reward, read, prompts.solutions))
    sampled_right = np.zeros((0, config.num_samples), bool)
    if sampling is not None:
        first = prompts.take(range(min(config.sample_prompts, len(prompts))))
        draws = uniforms((seed, len(first)), len(first) * config.num_samples, sampling.T)
        samples, _ = complete(sampling, first, vocabulary, draws)
        solutions = [solution for solution in first.solutions for _ in range(config.num_samples)]
        right_samples = are_right(reward, first.continued(samples), solutions)
        sampled_right = np.array(right_samples).reshape(len(first), -1)
    return Answers(texts, right, scores, sampled_right)


def complete(
    decoder: Decoder, prompts: Prompts, vocabulary: Vocabulary, draws: NDArray[np.float32] | None
) -> tuple[list[str], list[int]]:
    """Return texts and lengths of decoder.G completions of each prompt; draws None: greedy."""
    P, G = decoder.P, decoder.G
    texts, tokens = list[str](), list[int]()
    by_prompt = None if draws is None else draws.reshape(len(prompts), G, -1)
    for start in range(0, len(prompts), P):
        batch = np.arange(start, min(start + P, len(prompts)))
        rows = np.resize(batch, P)  # the last is filled up: another shape would be compiled anew
        uniform = None if by_prompt is None else by_prompt[rows].reshape(P * G, -1)
        done = decoder.generate(prompts.ids[rows], prompts.lengths[rows], uniform)
        texts += vocabulary.texts(done.ids, done.lengths)[: len(batch) * G]
        tokens += done.lengths[: len(batch) * G].tolist()
    return texts, tokens


def pass_at_k(right: NDArray[np.bool_], k: int) -> float:
    """Estimate from right [prompts, n] the share of prompts that at least one of k attempts solves, unbiased.

    Raises:
        ValueError: n is less than k.

    Source: Chen et al. 2021, arXiv:2107.03374, eq. 1 and figure 3 (its numerically stable product).
    """
    n = right.shape[1]
    if n < k:
        raise ValueError(f"pass@{k} of {n} attempts")
    missed = [
        float(np.prod(1.0 - k / np.arange(n - c + 1, n + 1))) if n - c >= k else 0.0 for c in right.sum(1)
    ]
    return float(np.mean([1.0 - probability for probability in missed]))


def summary(before: Answers, after: Answers, k: int) -> dict[str, Any]:
    """Return the content of result.json."""
    accuracies = [float(answers.right.mean()) for answers in (before, after)]
    result: dict[str, Any] = {
        "accuracy_sft": accuracies[0],
        "accuracy_grpo": accuracies[1],
        "gain": accuracies[1] - accuracies[0],
        "prompts": len(before.right),
        "outcomes": outcomes(before.right, after.right),
        "worked_share": {"sft": worked_share(before.texts), "grpo": worked_share(after.texts)},
    }
    if before.sampled_right.size:
        sampled = {"sft": before.sampled_right, "grpo": after.sampled_right}
        result["pass_at_k"] = {"k": k, **{name: pass_at_k(right, k) for name, right in sampled.items()}}
        n = before.sampled_right.shape[1]
        result["mean_at_k"] = {"k": n, **{name: float(right.mean()) for name, right in sampled.items()}}
        result["sample_prompts"] = len(before.sampled_right)
    return result


def outcomes(before: NDArray[np.bool_], after: NDArray[np.bool_]) -> dict[str, int]:
    """Return how many prompts GRPO fixed and broke, and how many stayed right and wrong."""
    counts = {
        "fixed": ~before & after, "broken": before & ~after,
        "both_right": before & after, "both_wrong": ~before & ~after,
    }  # fmt: skip
    return {name: int(prompts.sum()) for name, prompts in counts.items()}


def worked_share(texts: Sequence[str]) -> float:
    """Return the share of answers that show their work: more than one line."""
    return float(np.mean(["\n" in text.strip() for text in texts]))


def samples(prompts: Prompts, before: Answers, after: Answers, count: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of samples.jsonl."""
    for i in range(min(count, len(prompts))):
        yield {
            "prompt": prompts.texts[i],
            "solution": prompts.solutions[i],
            "before": before.texts[i],
            "after": after.texts[i],
            "before_right": bool(before.right[i]),
            "after_right": bool(after.right[i]),
            "before_reward": float(before.rewards.total[i]),
            "after_reward": float(after.rewards.total[i]),
            "before_parts": {name: float(values[i]) for name, values in before.rewards.parts.items()},
            "after_parts": {name: float(values[i]) for name, values in after.rewards.parts.items()},
        }
