"""Completions of several turns by verl's own agent loop: ids, masks, loss and gradient, metrics."""

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest

from pipeline.config.load import load
from stages.engines.verl import train
from stages.engines.verl.config import ToolParser
from stages.engines.verl.job import PLUGIN, RECIPE
from tests.upstream.programs import ask, run
from tests.upstream.verl.product import BETA, EPOCHS, GENERATIONS, PROMPTS, STEPS, Verl

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
HERE = Path(__file__).parent
SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 1024,
}  # fmt: skip
MAX_TOKENS, LEARNING_RATE = 112, 1e-3
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first number."},
                "b": {"type": "integer", "description": "The second number."},
            },
            "required": ["a", "b"],
        },
    },
}
AGENT = ("tokenize.chat_template=true", "tokenize.system_prompt=''", "tokenize.prompt_suffix=''",
         "tokenize.max_prompt_length=32", "rollout.agent=tool")  # fmt: skip
END = "<|im_end|>"
QUESTION = {"role": "user", "content": "3+4="}


def call(name="add", **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.fixture(scope="module")
def model(interpreter, tmp_path_factory):
    """Return verl's interpreter with a model that calls `add`, and prompts."""
    data = tmp_path_factory.mktemp("tools")
    python = interpreter("verl")
    run(python, HERE / "prepare_tools.py", data, json.dumps(SHAPE), json.dumps([ADD]))
    return Verl(python, data, SHAPE)


@pytest.fixture
def play(model, tmp_path, monkeypatch):
    """Return a function: overrides, turns of the model, conversations -> what turns.py answers."""
    for name in ("calculator.py", "own_agent.py"):
        shutil.copy(HERE / name, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def played(overrides, turns, conversations=()):
        config = load(
            ["engine=verl", "engine.device=cpu", "model=tiny_qwen3", "layout=dp1_mp1_pp1", *AGENT, *overrides]
        )
        work = tmp_path / "work"
        train.render(config.plain(), {"tokenize": tmp_path, "fetch": tmp_path}, work).write(work)
        shutil.copytree(model.data / "model", work / "model", dirs_exist_ok=True)
        request = {"messages": [QUESTION], "turns": turns, "conversations": conversations}
        env = {"PYTHONPATH": str(PLUGIN), "VERL_USE_EXTERNAL_MODULES": "grpoflow_verl_cpu"}
        env |= {"VERL_PLATFORM": "grpoflow_cpu"}
        return ask(model.python, HERE / "turns.py", request, work / "configs", RECIPE, env=env)

    return played


def own_tokens(made):
    """Return the completion's mask by what the server gave: 1 for tokens that the model generated."""
    whole = made["prompt"] + made["response"]
    mask = [0] * len(whole)
    for prompt, tokens in zip(made["requests"], made["generated"], strict=False):
        assert whole[: len(prompt)] == prompt
        end = min(len(whole), len(prompt) + len(tokens))
        assert whole[len(prompt) : end] == tokens[: end - len(prompt)]
        mask[len(prompt) : end] = [1] * (end - len(prompt))
    return mask[len(made["prompt"]) :]


@pytest.mark.core
def test_generated_ids_stay_as_they_are_and_are_the_only_ones_in_the_mask(play):
    """No turn is decoded and encoded again, where other ids may have the same text.

    Of the second conversation, each character of the call is a token: encoding its text gives fewer.
    """
    right = call(a=3, b=4)
    asked = [QUESTION, {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "add", "arguments": {"a": 3, "b": 4}}}
    ]}]  # fmt: skip
    answered = [*asked, {"role": "tool", "content": "7"}, {"role": "assistant", "content": "7"}]
    cleared = [QUESTION, {"role": "assistant", "content": ""}, *answered[2:]]
    tools = "rollout.tools=[calculator:add,calculator:repeat,calculator:numbers]"
    lengths = ("rollout.tools_length=1500", "rollout.max_tokens=400", "model.max_position_embeddings=2048")
    result = play(
        (tools, *lengths),
        [[right + END, "7" + END], [[*right, END], "7" + END], ["7" + END]],
        [answered, cleared],
    )
    canonical, characters, single = result["made"]
    for made in result["made"]:
        assert made["mask"] == own_tokens(made)
        assert all(
            (value == 0) is (mine == 0) for value, mine in zip(made["logprobs"], made["mask"], strict=True)
        )
    assert 0 < sum(canonical["mask"]) < len(canonical["mask"]) and all(single["mask"])
    assert "<tool_response>7</tool_response>" in canonical["text"] == characters["text"]
    assert canonical["encoded_again"] == canonical["response"] != characters["response"]
    assert characters["encoded_again"] == canonical["response"]
    whole, without_calls = result["ids"]  # and the line break after the last turn
    assert canonical["prompt"] + canonical["response"] == whole[:-1] != without_calls[:-1]
    assert [made["turns"] for made in result["made"]] == [4, 4, 2]
    start = len(canonical["response"]) - 2
    assert canonical["counts"] == {
        "grpoflow_turn_start": start, "grpoflow_tool_calls": 1, "grpoflow_tool_failures": 0
    }  # fmt: skip
    assert result["tools"]["given"] == result["tools"]["inferred"]
    assert sorted(get_args(ToolParser)) == result["parsers"]


def test_turns_end_at_the_limits_and_failed_calls_are_counted(play):
    three = [call(a=1, b=1) + END, call("sub", a=1) + END, call(a="x", b=1) + END]
    result = play(
        ("rollout.tools=[calculator:add,calculator:repeat]", "rollout.tools_length=1500",
         "rollout.max_turns=3", "rollout.max_tokens=300", "rollout.max_tool_characters=8",
         "model.max_position_embeddings=2048"),
        [three, [call("repeat", text="abcdef", times=3) + END, "x" + END],
         [call(a=1, b="x") + END, "y" + END], [call(a=1, b=1) + "y" * 310],
         ["<tool_call>{}</tool_call>" + END]],
    )  # fmt: skip
    turns, cut, failed, full, malformed = result["made"]
    assert (turns["turns"], len(turns["requests"])) == (6, 3)  # the third call has no answer
    assert turns["counts"]["grpoflow_tool_calls"] == 2 and turns["counts"]["grpoflow_tool_failures"] == 1
    assert "Unknown function 'sub'" in turns["text"]
    assert "<tool_response>abcd...(truncated)...cdef</tool_response>" in cut["text"]
    assert failed["counts"]["grpoflow_tool_failures"] == 1
    assert len(full["response"]) == 300 and all(full["mask"]) and full["counts"]["grpoflow_tool_calls"] == 0
    assert len(malformed["requests"]) == 1
    for made in result["made"]:
        assert made["mask"] == own_tokens(made)


def test_an_agent_of_the_user_makes_completions(play):
    result = play(("rollout.agent=own_agent:Twice", "rollout.max_tokens=16"), [["4" + END, "5" + END]])
    (made,) = result["made"]
    assert made["text"] == "5" + END and len(made["requests"]) == 2
    assert made["counts"] == {"grpoflow_turn_start": 0}


def test_what_functions_return_has_no_gradient_in_a_training(model, tmp_path):
    """Loss, gradient and weights of a training equal plain torch's with the mask, and not without it.

    The oracle knows which tokens are the model's from the requests to the server, not from verl's mask.
    """
    shutil.copy(HERE / "calculator.py", tmp_path)
    record = tmp_path / "record.jsonl"
    made = model.train(
        tmp_path, *AGENT, "rollout.tools=[calculator:add]", f"rollout.max_tokens={MAX_TOKENS}",
        "train.loss_type=grpo", f"train.learning_rate={LEARNING_RATE}",
        f"+engine.env.PYTHONPATH={HERE / 'recorded'}", f"+engine.env.GRPOFLOW_TEST_RECORD={record}",
    )  # fmt: skip
    request = {
        "artifact": str(made.grpo),
        "model": str(model.data / "model"),
        "algorithm": "grpo",
        "beta": BETA,
    }
    request |= {"learning_rate": LEARNING_RATE, "steps": STEPS, "epochs": EPOCHS, "max_tokens": MAX_TOKENS}
    request |= {"recorded": str(record)}
    masked, unmasked = (
        ask(model.python, HERE / "oracle.py", {**request, "masked": masked}) for masked in (True, False)
    )
    names = {
        "loss": "actor/pg_loss",
        "kl": "actor/kl_loss",
        "norm": "actor/grad_norm",
        "reward": "critic/score/mean",
    }
    for metrics, step in zip(made.metrics(), masked["steps"], strict=True):
        measured = {ours: metrics[theirs] for ours, theirs in names.items()}
        assert measured == pytest.approx({name: step[name] for name in names}, rel=2e-5, abs=1e-6)
        assert metrics["training/rollout_probs_diff_max"] < 1e-5
    assert masked["difference"] < 5e-5 < 5e-3 < min(masked["moved"], unmasked["difference"])
    rows = [json.loads(line) for line in (made.grpo / "metrics.jsonl").read_text().splitlines()]
    requests = [json.loads(line) for line in record.read_text().splitlines()]
    for row in rows:  # each answered call leads to another request
        asked = sum(line["version"] == row["step"] - 1 for line in requests)
        assert row["tool_calls"] == pytest.approx(asked / (PROMPTS * GENERATIONS) - 1)
        assert row["turns"] == 2 + 2 * row["tool_calls"] and row["turns_max"] >= 4
    texts = [completion for step in made.completions() for _, completion, _ in step]
    assert any("tool\n<tool_response>" in text and "</tool_response>\nassistant\n" in text for text in texts)
