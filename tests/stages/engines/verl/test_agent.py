"""Completions of several turns: what is read from the user's functions, rendered, refused and counted."""

import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from pipeline.config.load import load
from pipeline.plan.graph import plan
from stages.base.errors import ConfigError, InputError
from stages.engines import scoring
from stages.engines.verl import agent, files, shrink, train
from stages.engines.verl.job import Job, Paths
from stages.engines.verl.tool_schemas import read_tool
from stages.fetch.tokenizer_files import CHAT_TEMPLATE, write_trained
from stages.grpo.config import AGENT_KEYS
from stages.tokenize.chat import ChatTemplate
from stages.tokenize.encode import Encoder
from stages.tokenizer import SpecialIds, token_ids
from stages.tokenizer import load as load_tokenizer
from tests.upstream.verl.prepare_template import TEMPLATE

BASE = (
    "engine=verl", "model=qwen2_5_7b", "model.path=/m", "layout=dp1_mp1_pp1", "tokenize.chat_template=true",
    "rollout.max_tokens=256", "rollout.agent=tool", "rollout.tools=[mine:add]",
)  # fmt: skip
ONE_TURN = ("rollout.agent=null", "rollout.tools=[]")
ADD = '''
def add(a: int, b: int = 1) -> str:
    """Add two numbers.

    Args:
        a: The first one.
        b (int): The second one,
            which may be left out.

    Returns:
        note: this is no parameter.
    """
    return str(a + b)
'''
DOCUMENTED = '    """Do it.\n\n    Args:\n        a: A value.\n    """\n'
CPU = "engine.device=cpu"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A directory with the user's module, from which commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(ADD)
    return tmp_path


def job(*overrides):
    return Job.from_run(load([*BASE, *overrides]))


def read(tmp_path, source, name="mine:f"):
    file = tmp_path / "read.py"
    file.write_text(source)
    return read_tool("rollout.tools[0]", name, file)


def test_a_function_is_described_by_its_docstring_and_type_hints(tmp_path):
    tool = read(tmp_path, ADD, "mine:add")
    a = {"type": "integer", "description": "The first one."}
    b = {"type": "integer", "description": "The second one, which may be left out."}
    parameters = {"type": "object", "properties": {"a": a, "b": b}, "required": ["a"]}
    function = {"name": "add", "description": "Add two numbers.", "parameters": parameters}
    assert (tool.schema, tool.problems) == ({"type": "function", "function": function}, ())


@pytest.mark.parametrize(
    ("hint", "kind"),
    [("str", "string"), ("float", "number"), ("bool", "boolean"), ("list[int]", "array"), ("list", "array"),
     ("dict[str, int]", "object"), ("int | None", "integer"), ("None | str", "string"), ("'float'", "number"),
     ("typing.Optional[int]", "integer"), ("Union[None, bool]", "boolean"), ("Literal['x', 'y']", "string"),
     ("t.Literal[1, 2]", "integer")],
)  # fmt: skip
def test_types_of_parameters(tmp_path, hint, kind):
    (parameter,) = (
        read(tmp_path, f"def f(a: {hint}):\n{DOCUMENTED}")
        .schema["function"]["parameters"]["properties"]
        .values()
    )
    assert parameter["type"] == kind and ("enum" in parameter) is ("Literal" in hint)


@pytest.mark.parametrize(
    ("source", "rule"),
    [("def g(a: int):\n" + DOCUMENTED, "has no function f"),
     ("class C:\n    def f(self): pass\n", "has no function f"),
     ("def f(a: int):\n    return a\n", "needs a docstring"),
     ("def f(a):\n" + DOCUMENTED, "a has no type hint"),
     ("def f(a: Thing):\n" + DOCUMENTED, "has the type hint Thing"),
     ("def f(a: int | str):\n" + DOCUMENTED, r"has the type hint int \| str"),
     ("def f(a: 'int['):\n" + DOCUMENTED, "has the type hint"),
     ("def f(a: Literal[1, 'x']):\n" + DOCUMENTED, "has the type hint"),
     ("def f(a: int, *rest):\n" + DOCUMENTED, "must not have"),
     ("def f(a: int, /):\n" + DOCUMENTED, "must not have"),
     ("def f(a: int, b: int):\n" + DOCUMENTED, "b is not described"),
     ("def f(:\n", "can't be read as Python")],
)  # fmt: skip
def test_functions_that_a_model_could_not_know_are_refused(tmp_path, source, rule):
    tool = read(tmp_path, source)
    assert tool.schema is None
    (problem,) = tool.problems
    assert problem.path == "rollout.tools[0]" and problem.remedy
    assert re.search(rule, problem.rule)


def test_verl_is_told_where_functions_and_loop_are(mine):
    paths = Paths(Path("/run"), Path("/data"))
    for overrides, sample in (
        ((CPU,), "grpoflow_verl_cpu.agent_loops:Identified"),
        ((CPU, "engine.rollout=vllm"), "grpoflow_seeded_loops:Seeded"),
        ((), None),
    ):
        made = job(*overrides, "rollout.max_turns=3", "engine.tool_parser=qwen3_coder")
        rollout = files.configuration(made, paths)["actor_rollout_ref"]["rollout"]
        assert rollout["multi_turn"] == {
            "enable": True, "function_tool_path": "/run/configs/tools.py", "max_assistant_turns": 3,
            "max_parallel_calls": 1, "max_tool_response_length": 256, "format": "qwen3_coder",
        }  # fmt: skip
        assert rollout["agent"]["agent_loop_config_path"] == "/run/configs/agent_loops.yaml"
        (loop,) = yaml.safe_load(agent.files(made, paths)["configs/agent_loops.yaml"])
        assert loop["name"] == rollout["agent"]["default_agent_loop"]
        assert (loop["loop"], loop["sample"]) == (agent.TOOL_LOOP, sample)
    data = files.configuration(job("rollout.tools_length=100"), paths)["data"]
    assert data["max_prompt_length"] == job().tokenize.max_prompt_length + 100
    own = job("rollout.agent=mine:Mine", "rollout.tools=[]")
    (loop,) = yaml.safe_load(agent.files(own, paths)["configs/agent_loops.yaml"])
    assert loop["loop"] == "mine:Mine"
    one_turn = job(*ONE_TURN, CPU)
    assert agent.files(one_turn, paths) == agent.configuration(one_turn, paths) == {}
    assert (
        files.configuration(one_turn, paths)["data"]["max_prompt_length"]
        == one_turn.tokenize.max_prompt_length
    )


def test_the_rendered_file_registers_the_planned_functions(mine, monkeypatch):
    registered = {}
    module = ModuleType("verl.tools.function_tool")
    module.function_tool = lambda name, schema: lambda function: registered.update({name: (function, schema)})
    for name in ("verl", "verl.tools"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "verl.tools.function_tool", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = job()
    for name, text in agent.files(made, Paths(mine, mine)).items():
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text(text)
    runpy.run_path(str(mine / "configs/tools.py"))
    function, schema = registered["add"]
    assert function(3, 4) == "7" and schema == agent.tools(made)[0].schema
    assert str(mine / scoring.COPIES) in sys.path
    sys.modules.pop("mine")


def test_functions_are_part_of_the_fingerprint_of_grpo_alone(mine):
    (mine / "helper.py").write_text("X = 1\n")
    (mine / "mine.py").write_text("import helper\n" + ADD)

    def keys(*overrides):
        specs = plan(load([*BASE, *overrides]), lambda path: path.read_text()).specs
        return {spec.name: spec.key.fingerprint for spec in specs}

    first, turns = keys(), keys("rollout.max_turns=4")
    (mine / "helper.py").write_text("X = 2\n")
    for changed in (turns, keys()):
        differ = {name for name in first if first[name] != changed[name]}
        assert "grpo" in differ and differ <= {"grpo", "evaluate", "export", "report"}
    assert keys(*ONE_TURN) == keys(*ONE_TURN, "rollout.max_tool_characters=9", "rollout.tools_length=9")
    with pytest.raises(ConfigError, match=r"rollout\.tools\[0\].*module missing not found"):
        keys("rollout.tools=[missing:add]")
    with pytest.raises(ConfigError, match=r"rollout\.agent.*module missing not found"):
        keys("rollout.agent=missing:Agent", "rollout.tools=[]")
    assert set(AGENT_KEYS) <= vars(load(BASE).rollout).keys()


def encoder(directory, template):
    write_trained(["What is 1 + 2?\n"], 300, directory)
    special = token_ids(directory, json.loads((directory / "tokenizer_config.json").read_text()))
    config = load([*BASE])
    made = ChatTemplate(template, special, directory / "chat_template.jinja")
    return Encoder(
        load_tokenizer(directory), SpecialIds(None, (1,), 0), config.dataset, config.tokenize, made
    )


def test_template_and_lengths_are_compared_with_the_functions(mine):
    with_tools = encoder(mine, TEMPLATE)
    agent.check(with_tools, job())
    with pytest.raises(InputError, match="leaves out the functions"):
        agent.check(encoder(mine, CHAT_TEMPLATE), job())
    deaf = TEMPLATE.replace("message.content + '</tool_response>'", "'</tool_response>'")
    with pytest.raises(InputError, match="leaves out what functions return"):
        agent.check(encoder(mine, deaf), job())
    with pytest.raises(InputError, match=r"rollout\.tools_length=9: must be at least (\d+)") as short:
        agent.check(with_tools, job("rollout.tools_length=9"))
    least = int(str(short.value).rpartition("use ")[2])
    agent.check(with_tools, job(f"rollout.tools_length={least}"))
    with pytest.raises(InputError):
        agent.check(with_tools, job(f"rollout.tools_length={least - 1}"))
    with pytest.raises(InputError, match=r"rollout\.max_tokens=20: must be at least"):
        agent.check(with_tools, job("rollout.max_tokens=20"))


def test_a_rehearsal_leaves_room_for_a_call(mine):
    config = load([*BASE, "engine.python=python"]).plain()
    assert shrink.shrink(config, mine, 1)["rollout"]["max_tokens"] == shrink.CALL_TOKENS


def test_turns_and_calls_are_metrics_of_a_step(mine, tmp_path):
    work, logs, shown = tmp_path / "work", tmp_path / "logs", []
    work.mkdir()
    logs.mkdir()
    config = load([*BASE, "train.steps=2", "train.warmup_steps=0"]).plain()
    watcher = train.watch(config, logs, work, lambda *words: shown.append(words))
    calls = [(1, 2, 1), (1, 0, 0), (2, 0, 0)]
    lines = [json.dumps({"step": step, "calls": made, "failed": failed}) for step, made, failed in calls]
    (work / agent.CALLS).write_text("\n".join([*lines, "{", ""]))
    data = {"num_turns/mean": 3.0, "num_turns/max": 6, "critic/score/mean": 0.5}
    rows = [json.dumps({"step": step, "data": data}) for step in (1, 2)]
    (logs / "metrics.jsonl").write_text("\n".join([*rows, ""]))
    watcher.poll()
    first, second = map(json.loads, (work / "metrics.jsonl").read_text().splitlines())
    turns = {"turns": 3.0, "turns_max": 6.0}
    assert first.items() >= {**turns, "tool_calls": 1.0, "tool_failed_share": 0.5}.items()
    assert second.items() >= {**turns, "tool_calls": 0.0}.items() and "tool_failed_share" not in second
    row = {"step": 1, "reward": 0.5}
    assert agent.with_turns({**row, **turns}, job(*ONE_TURN), {}) == row
