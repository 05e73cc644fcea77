"""Completions of several turns (rollout.agent): verl's agent loops, and functions that the model may call.

verl loads configs/tools.py once per agent loop worker, and builds for each completion the loop that
configs/agent_loops.yaml names (agent_loop.py, which is copied next to the rewards). What functions return is
a part of the completion; verl's response_mask keeps its tokens out of the loss.
Sources (verl 0.9.1, paths in verl/): experimental/agent_loop/agent_loop.py, tool_agent_loop.py and
tool_parser.py, tools/function_tool.py, utils/tokenizer/continuous_token.py.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.base.errors import InputError, Problem
from stages.base.keys import leaves
from stages.engines import scoring
from stages.engines.outside import Row, dump
from stages.engines.upstream_keys import Rendered
from stages.engines.verl.job import Job, Paths
from stages.engines.verl.tool_schemas import Tool, read_tool
from stages.grpo.rules import TOOL, agent_code
from stages.rewards.planned_code import VARIABLE
from stages.rewards.user_code import directory_of, file_of
from stages.tokenize.chat import QUESTION
from stages.tokenize.encode import Encoder
from stages.tokenize.text import Turn, system_turns

Values = dict[str, Any]
TOOLS_FILE = "tools.py"
LOOPS_FILE = "agent_loops.yaml"
AGENT = "grpoflow_agent"
"""Name of the run's agent loop in verl's registry."""
TOOL_LOOP = "verl.experimental.agent_loop.tool_agent_loop:ToolAgentLoop"
MODULE = "grpoflow_agents"
"""Name of agent_loop.py in verl's interpreter."""
CALLS = "tool_calls.jsonl"
"""File below the work directory with a line for each completion: calls, and those that failed."""
SAMPLES = {
    "transformers": "grpoflow_verl_cpu.agent_loops:Identified",
    "vllm": "grpoflow_seeded_loops:Seeded",
}
"""Class of the plugin that makes the samples of a program repeatable."""
METRICS = {"num_turns/mean": "turns", "num_turns/max": "turns_max"}
"""verl's metric -> grpoflow's."""

RENDERED: Rendered = {
    "actor_rollout_ref.rollout.agent.default_agent_loop": "rollout.agent",
    "actor_rollout_ref.rollout.multi_turn.enable": "rollout.agent",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path": "=it lists rollout.tools",
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": "rollout.max_turns",
    "actor_rollout_ref.rollout.multi_turn.max_parallel_calls": "rollout.max_tool_calls",
    "actor_rollout_ref.rollout.multi_turn.max_tool_response_length": "rollout.max_tool_characters",
    "actor_rollout_ref.rollout.multi_turn.format": "engine.tool_parser",
}
"""Keys of verl that these functions render (files.py, RENDERED)."""
TOOL_CONFIG = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
"""verl's own file of tools with a state, which may replace rollout.tools."""
TEMPLATE = '''"""The functions that the model may call in this run. Written by grpoflow."""

import importlib
import os
import sys

sys.path[:0] = {path}
if os.path.exists({code!r}):  # the user's modules, and their digests
    os.environ[{variable!r}] = {code!r}
from stages.rewards import planned_code
from verl.tools.function_tool import function_tool

planned_code.install()
TOOLS = {tools}
for module, name, schema in TOOLS:
    function_tool(name, schema=schema)(getattr(importlib.import_module(module), name))
'''


def configuration(job: Job, paths: Paths) -> Values:
    """Return the section of the rollout; nothing for completions of one turn."""
    rollout = job.rollout
    if rollout.agent is None:
        return {}
    turns = {
        "enable": True,
        "function_tool_path": str(paths.configs / TOOLS_FILE),
        "max_assistant_turns": rollout.max_turns,
        "max_parallel_calls": rollout.max_tool_calls,
        "max_tool_response_length": rollout.max_tool_characters,
        "format": job.engine.tool_parser,
    }
    loops = str(paths.configs / LOOPS_FILE)
    return {
        "agent": {"default_agent_loop": AGENT, "agent_loop_config_path": loops},
        "multi_turn": turns,
    }


def files(job: Job, paths: Paths) -> Mapping[str, str]:
    """Return the rendered files and the copy of agent_loop.py: path below the work directory -> text."""
    rollout = job.rollout
    if rollout.agent is None:
        return {}
    modules = [name.partition(":")[0] for name in agent_code(rollout).values()]
    directories = [str(path) for module in modules if (path := directory_of(module))]
    described = [
        (*name.split(":"), tool.schema)
        for name, tool in zip(rollout.tools, tools(job), strict=True)
        if tool.schema is not None
    ]
    listed = "".join(f"    {entry!r},\n" for entry in described)
    text = TEMPLATE.format(
        path=list(dict.fromkeys([str(paths.root / scoring.COPIES), *directories])),
        code=str(paths.root / scoring.CODE),
        variable=VARIABLE,
        tools=f"[\n{listed}]" if listed else "[]",
    )
    loop: Values = {
        "name": AGENT,
        "_target_": f"{MODULE}.make",
        "loop": TOOL_LOOP if rollout.agent == TOOL else rollout.agent,
        "sample": SAMPLES[job.rollout_program] if job.seeds_samples else None,
    }
    copy = Path(__file__).with_name("agent_loop.py").read_text(encoding="utf-8")
    return {
        f"configs/{TOOLS_FILE}": text,
        f"configs/{LOOPS_FILE}": dump_list([loop]),
        f"{scoring.COPIES}/{MODULE}.py": copy,
    }


def dump_list(entries: Iterable[Values]) -> str:
    """Return YAML text of a list of groups."""
    return "".join("- " + dump(entry).replace("\n", "\n  ").rstrip() + "\n" for entry in entries)


def tools(job: Job) -> list[Tool]:
    """Return the descriptions of the functions of rollout.tools; without one where a module is missing."""
    found = []
    for index, name in enumerate(job.rollout.tools):
        file, key = file_of(name.partition(":")[0]), f"rollout.tools[{index}]"
        found.append(Tool(None, ()) if file is None else read_tool(key, name, file))
    return found


def problems(job: Job) -> Iterator[Problem]:
    """Yield problems of rollout.agent and rollout.tools; plan reports modules that are missing."""
    rollout = job.rollout
    if rollout.agent is None:
        if job.engine.tool_parser != "hermes":
            rule = "has no effect without rollout.agent: a completion of one turn calls no function"
            source = "ours: stages/engines/verl/agent.py"
            yield Problem("engine.tool_parser", job.engine.tool_parser, rule, "leave it out", source)
        return
    tool_config = dict(leaves(job.engine.upstream)).get(TOOL_CONFIG)
    if rollout.agent == TOOL and not rollout.tools and tool_config is None:
        rule = "must name at least one function with rollout.agent=tool"
        remedy = "for example rollout.tools=[calculator:add], or set rollout.agent to null"
        yield Problem("rollout.tools", [], rule, remedy, "experimental/agent_loop/tool_agent_loop.py")
    for tool in tools(job):
        yield from tool.problems


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about completions of several turns."""
    rollout = job.rollout
    if rollout.agent is None:
        return
    yield (
        f"rollout.agent={rollout.agent}: rollout.max_tokens={rollout.max_tokens} counts all turns and what "
        "functions return; reward functions get the last turn as the completion"
    )
    yield "evaluate answers in one turn without functions; train.validate_every checks with them"
    if not job.on_cpu:
        yield f"rollout.agent={rollout.agent} is rendered for cards, but grpoflow has run it on a CPU only"


def check(encoder: Encoder, job: Job) -> None:
    """Compare the model's chat template and the lengths of a run with its functions.

    Raises:
        InputError: the template leaves functions or their answers out, their descriptions are longer than
            rollout.tools_length, or no call with its answer fits into rollout.max_tokens.
    """
    template, rollout = encoder.template, job.rollout
    schemas = [tool.schema for tool in tools(job) if tool.schema is not None]
    if template is None or not schemas:
        return
    schemas.sort(key=lambda schema: str(schema["function"]["name"]))  # verl's order
    template.check_tools()
    turns = [*system_turns(encoder.config), Turn("user", QUESTION)]
    texts = [template.render(turns, generation=True, tools=shown) for shown in (None, schemas)]
    plain, described = map(len, encoder.batch_parts([template.split(text) for text in texts]))
    growth = described - plain
    if growth > rollout.tools_length:
        rule = f"must be at least {growth}, the tokens of the descriptions of rollout.tools"
        raise InputError("rollout.tools_length", rollout.tools_length, rule, f"use {growth}")
    calls = [json.dumps({"name": schema["function"]["name"], "arguments": {}}) for schema in schemas]
    shortest = min(map(len, encoder.batch(calls)))
    (frame,) = encoder.batch_parts([template.split(template.tool_answer(""))])
    least = shortest + len(frame) + 2  # the ends of both turns
    if least > rollout.max_tokens:
        rule = f"must be at least {least}: the shortest call, the frame of its answer, and another turn"
        raise InputError("rollout.max_tokens", rollout.max_tokens, rule, f"use {least} or more")


def with_turns(row: Row, job: Job, calls: Mapping[int, "Calls"]) -> Row:
    """Return a step's metrics with turns and calls if completions have several turns, else without turns."""
    if job.rollout.agent is None:
        return {name: value for name, value in row.items() if name not in METRICS.values()}
    counted = calls.get(int(row["step"]))
    return row if counted is None else {**row, **counted.metrics()}


class Calls:
    """Calls of functions in the completions of a step."""

    def __init__(self) -> None:
        self.completions, self.calls, self.failed = 0, 0, 0

    def add(self, line: str) -> None:
        """Count one completion of the file CALLS."""
        entry = json.loads(line)
        self.completions += 1
        self.calls += int(entry["calls"])
        self.failed += int(entry["failed"])

    def metrics(self) -> Row:
        """Return calls per completion, and the share of calls that failed."""
        shares = {"tool_failed_share": self.failed / self.calls} if self.calls else {}
        return {"tool_calls": self.calls / self.completions, **shares}
