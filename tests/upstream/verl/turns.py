"""A completion of several turns by verl's own agent loop worker; runs in verl's interpreter.

A server that answers with given ids stands for the model; all else is verl's: worker, tool agent loop,
parser, functions and the merging of tokens. `turns.py CONFIGS NAME`; request on stdin: messages; turns, for
each completion those of the model as text, or as texts that are encoded each on its own; and conversations to
render with the chat template. The answer: what the worker made, the prompts that the server got, the
conversations' ids, the functions' descriptions, and verl's parsers.
"""

import asyncio
import json
import sys
from pathlib import Path

import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from transformers.utils import get_json_schema
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.tools.tool_registry import load_all_tools
from verl.workers.rollout.replica import TokenOutput


class Script:
    """verl's client of servers, which answers with the next turn."""

    def __init__(self, turns):
        self.turns, self.prompts, self.sampling = list(turns), [], []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **kwargs):
        self.prompts.append(list(prompt_ids))
        self.sampling.append(sampling_params)
        ids = self.turns[len(self.prompts) - 1]
        logprobs = [-0.5 - 0.01 * position for position in range(len(ids))]
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields={})


def compose_rendered(configs, name):
    trainer = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(configs, version_base=None):
        config = compose(name, overrides=[f"hydra.searchpath=[file://{trainer}]"])
    OmegaConf.resolve(config)
    return config


async def run(config, messages, turns):
    script = Script([])
    worker = AgentLoopWorker(config, script)
    tokenizer = worker.tokenizer
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    parts = [[turn] if isinstance(turn, str) else turn for turn in turns]
    script.turns = [[token for part in turn for token in encode(part)] for turn in parts]
    made = await worker._run_agent_loop(
        {"temperature": 1.0}, {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False},
        agent_name=config.actor_rollout_ref.rollout.agent.default_agent_loop, raw_prompt=messages, index=0,
        session_id=0, global_steps=1,
    )  # fmt: skip
    prompt = made.prompt_ids[made.attention_mask[:, : made.prompt_ids.shape[1]] == 1].tolist()
    kept = made.attention_mask[0, made.prompt_ids.shape[1] :].bool()
    response = made.response_ids[0][kept].tolist()
    mask = made.response_mask[0][kept].tolist()
    logprobs = made.response_logprobs[0][kept].tolist()
    return {
        "prompt": prompt, "response": response, "mask": mask, "logprobs": logprobs, "turns": made.num_turns,
        "counts": {key: value for key, value in made.extra_fields.items() if key.startswith("grpoflow")},
        "requests": script.prompts, "generated": script.turns, "sampling": script.sampling,
        "text": tokenizer.decode(response), "encoded_again": encode(tokenizer.decode(response)),
    }  # fmt: skip


def described(config):
    """Return the descriptions of all functions as grpoflow gives them, and as verl would infer them."""
    path = config.actor_rollout_ref.rollout.multi_turn.function_tool_path
    plain = {"exclude_unset": True, "exclude_none": True}
    tools = load_all_tools(None, path)
    given = [tool.tool_schema.model_dump(**plain) for tool in tools]
    inferred = [OpenAIFunctionToolSchema.model_validate(get_json_schema(tool.fn)) for tool in tools]
    return {"given": given, "inferred": [schema.model_dump(**plain) for schema in inferred]}


def rendered(config, tools, conversations):
    tokenizer = AutoTokenizer.from_pretrained(config.actor_rollout_ref.model.path)
    texts = [tokenizer.apply_chat_template(each, tools=tools, tokenize=False) for each in conversations]
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


if __name__ == "__main__":
    request = json.load(sys.stdin)
    config = compose_rendered(*sys.argv[1:])
    tools = described(config)
    made = [asyncio.run(run(config, request["messages"], turns)) for turns in request["turns"]]
    ids = rendered(config, tools["given"], request["conversations"])
    print(json.dumps({"made": made, "tools": tools, "ids": ids, "parsers": sorted(ToolParser._registry)}))
