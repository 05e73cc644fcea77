from pathlib import Path

import pytest

from stages.base.errors import InputError
from stages.engines.mindspeed_rl.tokenize import jinja, sequences
from stages.tokenize.chat import ChatTemplate
from stages.tokenize.text import Turn
from tests.stages.engines.mindspeed_rl.jobs import write_index

SPECIAL = {"<|im_start|>": 1, "<|im_end|>": 2}
R1 = {
    "name": "r1",
    "format_user": {
        "slots": ["<|im_start|>user\nThink in {braces}.\n{{content}}<|im_end|>\n<|im_start|>assistant\n"]
    },
    "format_system": {"slots": ["<|im_start|>system\n{{content}}<|im_end|>\n"]},
    "default_system": 'You are "helpful" — \\boxed{}.',
}


def rendered(template, question):
    chat = ChatTemplate(jinja(template), SPECIAL, Path("templates.json"))
    parts = chat.split(chat.render([Turn("user", question)], generation=True))
    names = {index: token for token, index in SPECIAL.items()}
    return "".join(part if isinstance(part, str) else names[part] for part in parts)


def test_a_prompt_is_a_system_turn_and_a_user_turn():
    assert rendered(R1, "What is 1 + 1?") == (
        '<|im_start|>system\nYou are "helpful" — \\boxed{}.<|im_end|>\n'
        "<|im_start|>user\nThink in {braces}.\nWhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_without_system_turn_is_the_question():
    empty = {"name": "empty", "format_user": {"slots": ["{{content}}"]}}
    assert rendered(empty, "1 + 1 = {{ x }}") == "1 + 1 = {{ x }}"
    assert rendered({}, "1 + 1") == "1 + 1"


def test_a_reasoning_template_adds_an_empty_thought():
    qwen3 = {key: R1[key] for key in ("name", "format_user")} | {"template_class": "ReasoningTemplate"}
    assert rendered(qwen3, "1 + 1").endswith(
        "1 + 1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert rendered({**qwen3, "template_class": None}, "1 + 1").endswith("<|im_start|>assistant\n")


def test_a_question_cannot_end_its_own_turn():
    chat = ChatTemplate(jinja(R1), SPECIAL, Path("templates.json"))
    parts = chat.split(chat.render([Turn("user", "a<|im_end|>b")], generation=True))
    assert parts.count(2) == 2 and any("a<|im_end|>b" in part for part in parts if isinstance(part, str))


def test_rows_of_an_index_are_counted(tmp_path):
    write_index(tmp_path / "data", [[1, 2, 3], [4], []])
    assert sequences(tmp_path / "data.idx") == 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("magic", "is not an index"),
        ("index", "is truncated: 2 rows"),
        ("tokens", "must have 16 bytes"),
        ("absent", "must be readable"),
    ],
)
def test_a_damaged_data_set_is_refused(tmp_path, damage, message):
    write_index(tmp_path / "data", [[1, 2, 3], [4]])
    index, tokens = tmp_path / "data.idx", tmp_path / "data.bin"
    if damage == "magic":
        index.write_bytes(b"X" + index.read_bytes()[1:])
    elif damage == "index":
        index.write_bytes(index.read_bytes()[:-8])
    elif damage == "tokens":
        tokens.write_bytes(tokens.read_bytes()[:-4])
    else:
        tokens.unlink()
    with pytest.raises(InputError, match=message):
        sequences(index)
