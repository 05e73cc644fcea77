"""Reward manager of verl that computes a run's rewards with stages.rewards.

verl asks for the reward of one completion at a time, so a function gets lists with one item.
Only verl's interpreter imports it: as grpoflow_rewards, from a copy next to copies of stages/base and
stages/rewards (rewards.py).
"""
# mypy: ignore-errors

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from stages.base.errors import InputError
from stages.base.reader import read
from stages.base.tags import continued, tags_of
from stages.rewards.config import RewardConfig, comparing
from stages.rewards.score import prepare, score_each, weighted


def _is_right(config, text, truth, columns):
    """Return 1.0 for a right answer, as evaluate counts it, and 0.0 for others."""
    alone = comparing(config)
    return float(score_each(alone, [text], [truth], columns=columns).parts[alone.functions[0]][0] > 0)


def _append(file, *lines):
    """Add lines to a file of JSON lines, if there is one; it stays absent without any."""
    if file is not None and lines:
        with open(file, "a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(line) + "\n" for line in lines)


def _read_lines(file):
    """Return the JSON values of a file's lines."""
    with open(file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _usage_of(item, scored):
    """Return the line about what a service counted, if one was asked."""
    step = int(item.non_tensor_batch["global_steps"])
    return [{"step": step, "usage": scored.usage}] if scored.usage else []


def _threads(config):
    """Return how many completions are scored at the same time: a thread waits for each."""
    asked = config.judge.concurrency if config.judge else 0
    return max(8, asked, config.code.workers if config.code else 0)


def _turn_start(item):
    """Return where the last turn of a completion begins (agent_loop.py): 0 if it has only one."""
    return item.non_tensor_batch.get("tool_extra_fields", {}).get("grpoflow_turn_start", 0)


def _calls_of(item):
    """Return the line about calls of functions, if the completion could have some."""
    fields = item.non_tensor_batch.get("tool_extra_fields", {})
    if "grpoflow_tool_calls" not in fields:
        return []
    counts = {"calls": fields["grpoflow_tool_calls"], "failed": fields["grpoflow_tool_failures"]}
    return [{"step": int(item.non_tensor_batch["global_steps"]), **counts}]


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
            self._config = read(RewardConfig, values, "reward")
            self._pool = ThreadPoolExecutor(_threads(self._config))
            accepted = prepare(self._config)  # verl ignores later errors
            names = [each.names for each in accepted]
            self._takes_prompts = any(each is None or "prompts" in each for each in names)
            takes_columns = any(each is None or each - {"prompts"} for each in names)
            self._rows = _read_lines(columns) if takes_columns else []
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
            text = continued(prompt, self._read(responses[start:tokens]))
            truth = item.non_tensor_batch["reward_model"]["ground_truth"]
            named, loop = self._arguments(item, prompt), asyncio.get_running_loop()
            if item.non_tensor_batch["extra_info"].get("split") == validation:
                arguments = (self._config, text, truth, named)
                right = await loop.run_in_executor(self._pool, _is_right, *arguments)
                return {"reward_score": right, "reward_extra_info": {"acc": right}}
            _append(calls, *_calls_of(item))
            try:  # in a thread: the event loop goes on with generation
                arguments = (self._config, [text], [truth], [tokens], named)
                scored = await loop.run_in_executor(self._pool, score_each, *arguments)
                faults = {name: scored.messages[name] for name, count in scored.faults.items() if count}
                late = [name for name in faults if scored.late[name]]
                parts = {name: np.array(column, np.float32) for name, column in scored.parts.items()}
                value = float(weighted(self._config, parts)[0])
                _append(usage, *_usage_of(item, scored))
            except InputError as error:  # verl would ignore it
                name = str(error.problem.value or error.problem.path)
                faults, late, value = {name: error.problem.rule}, [], 0.0
            if faults:
                step = int(item.non_tensor_batch["global_steps"])
                _append(report, {"step": step, "faults": faults, "late": late})
            return {"reward_score": value, "reward_extra_info": {}}

        def _arguments(self, item, prompt):
            """Return the named arguments of the user's functions."""
            named = {}
            if self._rows:
                row = self._rows[int(item.non_tensor_batch["extra_info"]["index"])]
                named = {name: [value] for name, value in row.items()}
            if self._takes_prompts:
                named["prompts"] = [prompt]
            return named

        def _read(self, ids):
            """Return the text of ids without special tokens except for tags, which rewards read."""
            kept = [i for i in ids.tolist() if i not in self._left_out]
            return self.tokenizer.decode(kept, skip_special_tokens=False)

    return Rewards
