"""Answers of two models to held-out prompts: correctness, rewards, and what evaluate writes about them.

Whatever program generated the answers, local or vLLM, they are read, decoded and scored here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.checks import demand
from stages.base.context import Context
from stages.grpo.columns import dataset_columns
from stages.grpo.config import EvaluateConfig
from stages.grpo.data import Prompts, Vocabulary, read_prompts
from stages.grpo.rules import evaluate_problems
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.correctness import are_right, warn_of_words
from stages.rewards.score import RewardScores, check_failures, prepare, score

MODELS = ("before", "after")
"""Inputs of evaluate with the weights before and after grpo, in the order in which they answer."""


@dataclass(frozen=True)
class Generated:
    """One model's completions of the held-out prompts, before they are scored."""

    texts: list[str]
    """Greedy, one per prompt."""
    lengths: list[int]
    """Tokens of each, the end token included."""
    samples: list[str]
    """evaluate.num_samples of each of the first prompts, those of one prompt together."""


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


def held_out(context: Context, config: EvaluateConfig) -> tuple[Prompts, Vocabulary]:
    """Check the settings, and read the held-out prompts that are asked, with the columns that rewards accept.

    Raises:
        ConfigError: pass@k cannot be estimated from the samples that are drawn.
        InputError: data are missing or do not fit.
    """
    demand(evaluate_problems(config))
    reward = context.section(RewardConfig, "reward")
    vocabulary = Vocabulary.read(context.inputs["fetch"], context.section(ModelConfig, "model"))
    accepted = prepare(reward)
    records = context.inputs["tokenize"] / "test.mindrecord"
    prompts = read_prompts(records, vocabulary)
    prompts = dataclasses.replace(prompts, columns=dataset_columns(context, records, len(prompts), accepted))
    prompts = prompts.take(range(min(len(prompts), config.num_prompts or len(prompts))))
    warn_of_words(context, reward, prompts.solutions)
    return prompts, vocabulary


def judge(context: Context, generated: Generated, prompts: Prompts, config: EvaluateConfig) -> Answers:
    """Score one model's completions, and warn of functions whose call with all of them failed."""
    reward = context.section(RewardConfig, "reward")
    texts, tokens = generated.texts, generated.lengths
    read = prompts.continued(texts)
    scores = score(reward, read, prompts.solutions, tokens, prompts.arguments(1))
    allowed = reward.max_failures
    if allowed is not None:  # the limit is meant for one training step
        reward = dataclasses.replace(reward, max_failures=max(allowed, len(texts) // 10))
    check_failures(reward, scores, len(texts), "held-out prompts")
    right = np.array(are_right(reward, read, prompts.solutions, prompts.arguments(1)))
    sampled_right = np.zeros((0, config.num_samples), bool)
    if generated.samples:
        first = prompts.take(range(len(generated.samples) // config.num_samples))
        solutions = [solution for solution in first.solutions for _ in range(config.num_samples)]
        arguments = first.arguments(config.num_samples)
        right_samples = are_right(reward, first.continued(generated.samples), solutions, arguments)
        sampled_right = np.array(right_samples).reshape(len(first), -1)
    for function, message in scores.single.items():
        rule = "scored one by one, because the call with all answers failed"
        context.warn(f"reward {function}: {rule}: {message}")
    return Answers(texts, right, scores, sampled_right)


def write(
    context: Context, prompts: Prompts, answers: Mapping[str, Answers], config: EvaluateConfig, **more: Any
) -> None:
    """Write result.json, with `more` keys, and samples.jsonl."""
    context.write_result({**summary(answers["before"], answers["after"], config.k), **more})
    rows = samples(prompts, answers["before"], answers["after"], config.logged_samples)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (context.output / "samples.jsonl").write_text(text, encoding="utf-8")


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
    """Yield the rows of samples.jsonl; those of the first prompts say how many samples were right, too."""
    for i in range(min(count, len(prompts))):
        sampled = {
            f"{side}_samples_right": int(answers.sampled_right[i].sum())
            for side, answers in (("before", before), ("after", after))
            if i < len(answers.sampled_right)
        }
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
            **({"samples": before.sampled_right.shape[1], **sampled} if sampled else {}),
        }
