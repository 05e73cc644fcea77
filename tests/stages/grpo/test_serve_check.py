"""What is asked of an exported model, and when its accuracy is another one."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pipeline.cli import serve_check as command
from stages.base.context import Context
from stages.grpo.config import greedy
from stages.grpo.serve_check import _by_vllm, _questions, differs
from tests.stages.fetch.settings import values


@pytest.mark.parametrize(
    ("right", "asked", "expected", "other"),
    [
        (952, 1024, 0.93, False),
        (92, 1024, 0.93, True),
        (937, 1024, 0.93, False),  # 0.915: two standard errors are 0.016
        (930, 1024, 0.93, True),
        (0, 16, 0.0, False),
        (15, 16, 1.0, False),
        (8, 16, 1.0, True),
    ],
)
def test_two_standard_errors_are_the_bound(right, asked, expected, other):
    assert differs(right, asked, expected) is other


def test_the_questions_are_those_of_the_records(tmp_path):
    rows = [{"question": f"q{n}", "answer": "#### 1"} for n in range(5)]
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "broken\n")
    entry = {"file": "test.mindrecord", "source": "test.jsonl", "line": 2, "reason": "too long"}
    (tmp_path / "test.dropped.jsonl").write_text(json.dumps(entry) + "\n")
    config = {
        "dataset": values("dataset", "gsm8k") | {"source": "url"},
        "tokenize": values("tokenize", "gsm8k"),
    }
    inputs = {"fetch_dataset": tmp_path, "tokenize": tmp_path}
    context = Context("serve_check", config, inputs, tmp_path, tmp_path, tmp_path / "p")
    assert _questions(context, None) == ["q0", "q2", "q3", "q4"]
    assert _questions(context, 2) == ["q0", "q2"]


def test_vllm_is_asked_through_the_template(tmp_path, monkeypatch):
    """As its documentation has it (LLM.chat); vLLM itself needs a card."""
    seen = {}

    class LLM:
        def __init__(self, model):
            seen["model"] = model

        def chat(self, conversations, sampling):
            seen.update(conversations=conversations, sampling=sampling)
            output = SimpleNamespace(text="7")
            return [SimpleNamespace(prompt_token_ids=[1, 2], outputs=[output]) for _ in conversations]

    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, lambda **given: given  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    assert _by_vllm(tmp_path, ["3+4?"], None, greedy(28)) == ([[1, 2]], ["7"])  # type: ignore[arg-type]
    assert seen["conversations"] == [[{"role": "user", "content": "3+4?"}]]
    assert seen["sampling"] == {"temperature": 0.0, "repetition_penalty": 1.0, "max_tokens": 28}


@pytest.mark.parametrize(
    ("expected", "right", "answer", "code"),
    [(0.93, 952, "7", 0), (0.93, 92, "7", 1), (0.0, 0, "7", 0), (0.0, 0, "8", 1)],
)
def test_an_accuracy_that_differs_fails(expected, right, answer, code, capsys):
    reply = {
        "prompts": ["p"] * 1024,
        "answers": [answer] * 1024,
        "right": right,
        "asked": 1024,
        "otherwise": 3,
    }
    assert command._report_accuracy(Path("d"), "vllm", reply, expected, ["7"] * 3) == code
    told = capsys.readouterr().out
    assert told.count("prompt  ") == 3 and "3 of 1024 prompts have other ids" in told
    assert told.splitlines()[-1].startswith("NOT ok" if code else "ok")
