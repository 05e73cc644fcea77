"""The questions of serve-check, and the bound beyond which an accuracy differs from evaluate's."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from pipeline.cli.serve_check import differs
from stages.base.reader import read
from stages.fetch.config import DatasetConfig
from stages.grpo.config import greedy
from stages.grpo.serve_check import ask_vllm, held_out
from stages.tokenize.config import TokenizeConfig
from tests.stages.fetch.settings import values


@pytest.mark.parametrize(
    ("right", "total", "expected", "is_different"),
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
def test_two_standard_errors_are_the_bound(right, total, expected, is_different):
    assert differs(right, total, expected) is is_different


def test_the_questions_are_those_of_the_records(tmp_path):
    rows = [{"question": f"q{n}", "answer": "#### 1"} for n in range(5)]
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "broken\n")
    entry = {"file": "test.mindrecord", "source": "test.jsonl", "line": 2, "reason": "too long"}
    (tmp_path / "test.dropped.jsonl").write_text(json.dumps(entry) + "\n")
    dataset = read(DatasetConfig, values("dataset", "gsm8k") | {"source": "url"})
    tokenize = read(TokenizeConfig, values("tokenize", "gsm8k"))
    questions = [row.prompt for row in held_out(tmp_path, tmp_path, dataset, tokenize)]
    assert questions == ["q0", "q2", "q3", "q4"]


def test_vllm_answers_through_the_template(tmp_path, monkeypatch):
    """LLM.chat as its documentation describes it; vLLM itself needs a card."""
    seen = {}

    class LLM:
        def __init__(self, model):
            seen["model"] = model

        def chat(self, conversations, sampling):
            seen.update(conversations=conversations, sampling=sampling)
            return [SimpleNamespace(outputs=[SimpleNamespace(text="7")]) for _ in conversations]

    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, lambda **options: options  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    assert ask_vllm(tmp_path, ["3+4?"], greedy(28)) == ["7"]
    assert seen["conversations"] == [[{"role": "user", "content": "3+4?"}]]
    assert seen["sampling"] == {"temperature": 0.0, "repetition_penalty": 1.0, "max_tokens": 28}
