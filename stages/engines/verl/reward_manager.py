"""Reward manager of verl that computes a run's rewards with stages.rewards.

verl asks for the reward of one completion at a time, so a function gets lists with one item.
Only verl's interpreter imports it: as grpoflow_rewards, from a copy next to copies of stages/base and
stages/rewards (rewards.py).
"""
# mypy: ignore-errors

import asyncio
import json

import numpy as np
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from stages.base.errors import InputError
from stages.base.reader import read
from stages.base.tags import continued, tags_of
from stages.rewards.config import RewardConfig, judge_of
from stages.rewards.score import prepare, score_each, weighted


def _is_right(config, text, truth):
    """Return 1.0 for a right answer, as evaluate counts it, and 0.0 for others."""
    judge = judge_of(config)
    alone = RewardConfig((judge,), (1.0,), None, timeout_s=config.timeout_s)
    return float(score_each(alone, [text], [truth]).parts[judge][0] > 0)


def _read_lines(file):
    """Return the JSON values of a file's lines."""
    with open(file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def make_manager(values, report, columns, validation):
    """Return the class of a reward manager.

    Args:
        values: section reward of the configuration.
        report: file that gets a line for each completion that a reward function fails for.
        columns: file with the columns of each training row.
        validation: extra_info.split of rows whose answers are only compared with the ground truth.
    """

    class Rewards(RewardManagerBase):
        def __init__(self, config, tokenizer, compute_score, **unused):
            super().__init__(config, tokenizer, compute_score)
            self._config = read(RewardConfig, values, "reward")
            accepted = prepare(self._config)  # verl ignores later errors
            names = [each.names for each in accepted]
            self._takes_prompts = any(each is None or "prompts" in each for each in names)
            takes_columns = any(each is None or each - {"prompts"} for each in names)
            self._rows = _read_lines(columns) if takes_columns else []
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
            if item.non_tensor_batch["extra_info"].get("split") == validation:
                right = await asyncio.to_thread(_is_right, self._config, text, truth)
                return {"reward_score": right, "reward_extra_info": {"acc": right}}
            named = self._arguments(item)
            try:  # in a thread: the event loop goes on with generation
                scored = await asyncio.to_thread(score_each, self._config, [text], [truth], [tokens], named)
                faults = {name: scored.messages[name] for name, count in scored.faults.items() if count}
                late = [name for name in faults if scored.late[name]]
                parts = {name: np.array(column, np.float32) for name, column in scored.parts.items()}
                value = float(weighted(self._config, parts)[0])
            except InputError as error:  # verl would ignore it
                name = str(error.problem.value or error.problem.path)
                faults, late, value = {name: error.problem.rule}, [], 0.0
            if faults:
                step = int(item.non_tensor_batch["global_steps"])
                with open(report, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"step": step, "faults": faults, "late": late}) + "\n")
            return {"reward_score": value, "reward_extra_info": {}}

        def _arguments(self, item):
            """Return the named arguments of the user's functions."""
            named = {}
            if self._rows:
                row = self._rows[int(item.non_tensor_batch["extra_info"]["index"])]
                named = {name: [value] for name, value in row.items()}
            if self._takes_prompts:
                named["prompts"] = [self._read(item.batch["prompts"])]
            return named

        def _read(self, ids):
            """Return the text of ids without special tokens except for tags, which rewards read."""
            kept = [i for i in ids.tolist() if i not in self._left_out]
            return self.tokenizer.decode(kept, skip_special_tokens=False)

    return Rewards
