"""Reward manager of verl that computes a run's rewards with stages.rewards.

Only verl's interpreter imports it: as grpoflow_rewards, from a copy next to copies of stages/base and
stages/rewards (rewards.py).
"""
# mypy: ignore-errors

import asyncio
from collections import Counter
from pathlib import Path

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from stages.base.errors import InputError
from stages.base.reader import read
from stages.rewards.config import RewardConfig
from stages.rewards.score import ANSWER_LIMIT_S, Columns, check_failures, score_each


def make_manager(values, samples, report):
    """Return the class of a reward manager.

    Args:
        values: section reward of the configuration.
        samples: completions of a step; reward.max_failures holds for so many.
        report: file that gets the message if a reward function fails too often.
    """

    class Rewards(RewardManagerBase):
        def __init__(self, config, tokenizer, compute_score, **unused):
            super().__init__(config, tokenizer, compute_score)
            self._config = read(RewardConfig, values, "reward")
            score_each(self._config, [], [], [])  # imports the functions; verl ignores later errors
            self._scored, self._faults, self._messages = 0, Counter(), {}

        async def run_single(self, data):
            """Return the reward of a completion, of the last turn if it has several."""
            item = data[-1]
            responses = item.batch["responses"]
            tokens = int(item.batch["attention_mask"][-len(responses) :].sum())
            text = self.tokenizer.decode(responses[:tokens], skip_special_tokens=True)
            truth = item.non_tensor_batch["reward_model"]["ground_truth"]
            columns = await self._score(text, truth, tokens)
            self._check(columns)
            return {"reward_score": total(self._config, columns), "reward_extra_info": {}}

        async def _score(self, text, truth, tokens):
            work = asyncio.to_thread(score_each, self._config, [text], [truth], [tokens])
            try:
                return await asyncio.wait_for(work, ANSWER_LIMIT_S * len(self._config.functions))
            except asyncio.TimeoutError:
                names = self._config.functions
                message = f"no result after {ANSWER_LIMIT_S:g} s"
                ones = dict.fromkeys(names, 1)
                return Columns({name: [0.0] for name in names}, ones, ones, dict.fromkeys(names, message))

        def _check(self, columns):
            self._scored += 1
            self._faults.update(columns.faults)
            self._messages = {**columns.messages, **self._messages}
            if self._scored < samples:
                return
            sums = Columns({}, {}, dict(self._faults), self._messages)
            try:
                check_failures(self._config, sums, samples, "completions")
            except InputError as error:
                Path(report).write_text(str(error), encoding="utf-8")
            self._scored, self._faults, self._messages = 0, Counter(), {}

    return Rewards


def total(config, columns):
    """Return the weighted sum for one completion in float32, as stages.rewards.score.weighted."""
    import numpy as np

    parts = (
        np.float32(weight) * np.float32(columns.parts[name][0])
        for name, weight in zip(config.functions, config.weights, strict=True)
    )
    return float(sum(parts, np.float32(0)))
