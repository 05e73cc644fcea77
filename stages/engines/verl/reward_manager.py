"""Reward manager of verl that computes a run's rewards with stages.rewards.

Only verl's interpreter imports it: as grpoflow_rewards, from a copy next to copies of stages/base and
stages/rewards (rewards.py).
"""
# mypy: ignore-errors

import asyncio
import json

import numpy as np
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from stages.base.reader import read
from stages.base.tags import continued, tags_of
from stages.rewards.config import RewardConfig
from stages.rewards.score import ANSWER_LIMIT_S, Columns, score_each, weighted


def make_manager(values, report):
    """Return the class of a reward manager.

    Args:
        values: section reward of the configuration.
        report: file that gets a line for each completion that a reward function fails for.
    """

    class Rewards(RewardManagerBase):
        def __init__(self, config, tokenizer, compute_score, **unused):
            super().__init__(config, tokenizer, compute_score)
            self._config = read(RewardConfig, values, "reward")
            score_each(self._config, [], [], [])  # imports the functions; verl ignores later errors
            added = tokenizer.added_tokens_decoder
            tags = tags_of(token.content for token in added.values())
            self._left_out = {i for i, token in added.items() if token.special and token.content not in tags}

        async def run_single(self, data):
            """Return the reward of a completion, of the last turn if it has several."""
            item = data[-1]
            responses = item.batch["responses"]
            tokens = int(item.batch["attention_mask"][-len(responses) :].sum())
            text = continued(self._read(item.batch["prompts"]), self._read(responses[:tokens]))
            truth = item.non_tensor_batch["reward_model"]["ground_truth"]
            columns = await self._score(text, truth, tokens)
            if faults := {name: columns.messages[name] for name, count in columns.faults.items() if count}:
                step = int(item.non_tensor_batch["global_steps"])
                with open(report, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"step": step, "faults": faults}) + "\n")
            parts = {name: np.array(column, np.float32) for name, column in columns.parts.items()}
            return {"reward_score": float(weighted(self._config, parts)[0]), "reward_extra_info": {}}

        def _read(self, ids):
            """Return the text of ids without special tokens except for tags, which rewards read."""
            kept = [i for i in ids.tolist() if i not in self._left_out]
            return self.tokenizer.decode(kept, skip_special_tokens=False)

        async def _score(self, text, truth, tokens):
            work = asyncio.to_thread(score_each, self._config, [text], [truth], [tokens])
            try:
                return await asyncio.wait_for(work, ANSWER_LIMIT_S * len(self._config.functions))
            except asyncio.TimeoutError:
                names = self._config.functions
                message = f"no result after {ANSWER_LIMIT_S:g} s"
                ones = dict.fromkeys(names, 1)
                return Columns({name: [0.0] for name in names}, ones, ones, dict.fromkeys(names, message))

    return Rewards
