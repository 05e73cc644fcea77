"""Reward manager of verl that computes a run's rewards with stages.rewards.

verl asks for the reward of one completion at a time; stages/rewards/arriving.py gives a function those that
arrive while its call before is running. Only verl's interpreter imports this file: as grpoflow_rewards, from
a copy next to copies of stages/base and stages/rewards (rewards.py).
"""
# mypy: ignore-errors

import json

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from stages.base.reader import read
from stages.base.tags import continued, tags_of
from stages.rewards.arriving import Arrived, Arriving
from stages.rewards.config import RewardConfig


def _turn_start(item):
    """Return where the last turn of a completion begins (agent_loop.py): 0 if it has only one."""
    return item.non_tensor_batch.get("tool_extra_fields", {}).get("grpoflow_turn_start", 0)


def _write_calls(file, item, step):
    """Add a line about calls of functions to `file`, if the completion could have some."""
    fields = item.non_tensor_batch.get("tool_extra_fields", {})
    if file is not None and "grpoflow_tool_calls" in fields:
        counts = {"calls": fields["grpoflow_tool_calls"], "failed": fields["grpoflow_tool_failures"]}
        with open(file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps({"step": step, **counts}) + "\n")


def make_manager(values, report, usage, columns, validation, calls=None):
    """Return the class of a reward manager.

    Args:
        values: section reward of the configuration.
        report: file that gets a line for each completion that a reward function fails for.
        usage: file that gets a line for each completion that a service is asked about.
        columns: file with the columns of each training row.
        validation: extra_info.split of rows whose answers are only compared with the ground truth.
        calls: file that gets a line for each completion of a run in which the model may call functions; None
            without them.
    """

    class Rewards(RewardManagerBase):
        def __init__(self, config, tokenizer, compute_score, **unused):
            super().__init__(config, tokenizer, compute_score)
            # here: verl ignores later errors
            self._arriving = Arriving(read(RewardConfig, values, "reward"), report, usage, columns)
            added = tokenizer.added_tokens_decoder
            tags = tags_of(token.content for token in added.values())
            self._left_out = {i for i, token in added.items() if token.special and token.content not in tags}

        async def run_single(self, data):
            """Return the reward of a completion.

            If it has several turns, reward functions get the last one, and what precedes it as the prompt: an
            answer that a function of rollout.tools gave is none of the model's.
            """
            item = data[-1]
            responses, start = item.batch["responses"], _turn_start(item)
            tokens = int(item.batch["attention_mask"][-len(responses) :].sum())
            prompt = self._read(item.batch["prompts"]) + self._read(responses[:start])
            fields = item.non_tensor_batch
            arrived = Arrived(
                prompt=prompt,
                completion=continued(prompt, self._read(responses[start:tokens])),
                solution=fields["reward_model"]["ground_truth"],
                tokens=tokens,
                row=int(fields["extra_info"].get("index", 0)),
                step=int(fields["global_steps"]),
            )
            if fields["extra_info"].get("split") == validation:
                right = float(await self._arriving.is_right(arrived))
                return {"reward_score": right, "reward_extra_info": {"acc": right}}
            _write_calls(calls, item, arrived.step)
            value, _ = await self._arriving.reward(arrived)
            return {"reward_score": value, "reward_extra_info": {}}

        def _read(self, ids):
            """Return the text of ids without special tokens except for tags, which rewards read."""
            kept = [i for i in ids.tolist() if i not in self._left_out]
            return self.tokenizer.decode(kept, skip_special_tokens=False)

    return Rewards
