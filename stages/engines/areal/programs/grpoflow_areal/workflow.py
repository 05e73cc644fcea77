"""Generation and rewards of an AReaL run: one completion per episode, scored by grpoflow's functions.

AReaL's workers import it. It takes the prompt's ids as tokenize wrote them, so that AReaL renders no chat
template. A reward function that fails gives 0 and a line in the report, which the end of the run reads: AReaL
drops an episode that raises, and trains on another. The text of a completion waits in a file until a step
trains on it (batches.py).
Source: AReaL 1.0.4, workflow/rlvr.py.
"""
# mypy: ignore-errors

import functools
import json
import os
import sys
import traceback
import uuid
from itertools import groupby
from pathlib import Path

import torch
from areal import workflow_context
from areal.api import ModelRequest, RolloutWorkflow
from areal.utils import stats_tracker
from areal.utils.hf_utils import load_hf_tokenizer

from grpoflow_areal.batches import name

PROMPT_VERSION = -1
"""Version of the tokens of a prompt, which no model generated."""


@functools.cache
def task_of(file):
    """Return the content of task.json."""
    with open(file, encoding="utf-8") as lines:
        return json.load(lines)


@functools.cache
def scorer_of(file):
    """Return the scorer of stages.rewards, which is imported from copies, and the type of what it gets.

    AReaL makes a workflow for each prompt (infra/remote_inf_engine.py, _resolve_workflow); all of a process
    share one scorer, so that completions of several prompts are one batch. `file` is task.json.
    """
    settings = task_of(file)["scoring"]
    sys.path[:0] = [path for path in settings["path"] if path not in sys.path]
    if os.path.exists(settings["code"]):  # the user's modules, and their digests
        os.environ[settings["code_variable"]] = settings["code"]
    from stages.base.reader import read
    from stages.rewards.arriving import Arrived, Arriving
    from stages.rewards.config import RewardConfig

    config = read(RewardConfig, settings["reward"], "reward")
    return Arriving(config, settings["report"], settings["usage"], settings["columns"]), Arrived


tokenizer_of = functools.cache(load_hf_tokenizer)


class Workflow(RolloutWorkflow):
    """One episode: a completion of one prompt, with its reward."""

    def __init__(self, task, gconfig, tokenizer):
        self._task = task_of(task)
        self._tokenizer = tokenizer_of(tokenizer) if isinstance(tokenizer, str) else tokenizer
        self._sampling = gconfig.new(n_samples=1, stop_token_ids=self._task["end_ids"])
        self._arriving, self._arrived = scorer_of(task)
        from stages.base.tags import continued, tags_of

        self._continued = continued
        added = self._tokenizer.added_tokens_decoder
        tags = tags_of(token.content for token in added.values())
        self._left_out = {i for i, token in added.items() if token.special and token.content not in tags}

    async def arun_episode(self, engine, data):
        """Return tokens, log-probabilities, versions and reward of a completion, each [1, tokens]."""
        request = ModelRequest(
            rid=uuid.uuid4().hex,
            input_ids=data["prompt_ids"],
            gconfig=self._sampling,
            tokenizer=self._tokenizer,
        )
        response = await self._generate(engine, request)
        prompt, ids = self._read(response.input_tokens), response.output_tokens
        completion = self._continued(prompt, self._read(ids))
        step = max(response.output_versions, default=0) + 1
        arrived = self._arrived(prompt, completion, data["solution"], len(ids), data["row"], step)
        reward, parts = await self._arriving.reward(arrived)
        stats_tracker.get(workflow_context.stat_scope()).scalar(
            reward=reward, **{f"part_{name}": value for name, value in parts.items()}
        )
        inputs = len(response.input_tokens)
        tokens, versions = response.input_tokens + ids, [PROMPT_VERSION] * inputs + response.output_versions
        if self._task["completions"] is not None:
            ages = [[version, len(list(made))] for version, made in groupby(response.output_versions)]
            row = {"prompt": prompt, "completion": completion, "solution": data["solution"], "reward": reward}
            row |= {"parts": parts, "tokens": len(ids), "versions": ages}
            file = Path(self._task["episodes"]) / name(tokens, versions)
            file.write_text(json.dumps(row), encoding="utf-8")
        result = {
            "input_ids": torch.tensor(tokens, dtype=torch.int32),
            "loss_mask": torch.tensor([0] * inputs + [1] * len(ids), dtype=torch.int32),
            "logprobs": torch.tensor([0.0] * inputs + response.output_logprobs, dtype=torch.float32),
            "versions": torch.tensor(versions, dtype=torch.int32),
            "attention_mask": torch.ones(len(tokens), dtype=torch.bool),
            "rewards": torch.tensor(reward, dtype=torch.float32),
        }
        return {key: tensor.unsqueeze(0) for key, tensor in result.items()}

    async def _generate(self, engine, request):
        """Return the answer to a request; without one, end this worker, and so the run.

        AReaL has asked several times by then (infra/utils/http.py); it would leave out the prompt and, if the
        server is gone, go on asking forever. At the end of the run it stops servers before workers.
        """
        try:
            return await engine.agenerate(request)
        except Exception:
            if os.path.exists(self._task["final"]):
                raise
            traceback.print_exc()
            print("error: the inference server does not answer", file=sys.stderr, flush=True)
            os._exit(1)

    def _read(self, ids):
        """Return the text of ids without special tokens except for tags, which rewards read."""
        kept = [i for i in ids if i not in self._left_out]
        return self._tokenizer.decode(kept, skip_special_tokens=False)
