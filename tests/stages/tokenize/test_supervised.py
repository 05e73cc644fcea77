import json

import pytest

from stages.fetch.records import BadLine
from stages.fetch.tokenizer_files import CHAT_TEMPLATE, write_trained
from stages.tokenize.records import read_columns
from stages.tokenize.stage import make_encoder, tokenize_path
from stages.tokenize.supervised import Conversation, encode, read_conversations
from stages.tokenize.text import Turn
from tests.stages.fetch.settings import QWEN, dataset, needs_shared, tokenize, write_lines

TURNS = (
    Turn("user", "How many?"), Turn("assistant", "Two."), Turn("user", "Sure?"), Turn("assistant", "Yes."),
)  # fmt: skip


ANSWERED = [{"role": turn.role, "content": turn.content} for turn in TURNS[:2]]


@pytest.fixture
def directory(tmp_path):
    write_trained(["How many apples?\nTwo. Sure? Yes."] * 4, 320, tmp_path)
    return tmp_path


def encoder(directory, kind="conversations", **changes):
    return make_encoder(
        directory, None, dataset(max_bad_share=1.0), tokenize(kind, sft_length=200, **changes)
    )


def read(tmp_path, *rows, kind="conversations"):
    return list(read_conversations(write_lines(tmp_path / "rows.jsonl", *rows), kind))


def test_forms_of_a_conversation(tmp_path):
    sharegpt = [
        {"from": name, "value": t.content} for name, t in zip(["human", "gpt"] * 2, TURNS, strict=True)
    ]
    messages = [{"role": turn.role, "content": turn.content} for turn in TURNS]
    rows = read(tmp_path, {"conversations": sharegpt}, {"messages": messages, "conversations": None})
    assert [row.turns for row in rows] == [TURNS, TURNS]
    rows = [
        {"instruction": "Add.", "input": "1 2", "output": "3"},
        {"instruction": "Hello", "input": "", "output": "Hi", "text": "ignored"},
        {"instruction": "Hello", "output": "Hi"},
    ]
    result = [row.turns for row in read(tmp_path, *rows, kind="alpaca")]
    assert result[0] == (Turn("user", "Add.\n1 2"), Turn("assistant", "3"))
    assert result[1] == result[2] == (Turn("user", "Hello"), Turn("assistant", "Hi"))


def turns(*messages):
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("alpaca", {"instruction": "x", "input": ""}), ("alpaca", {"instruction": "", "output": "y"}),
        ("alpaca", {"instruction": "x", "input": 3, "output": "y"}),
        ("alpaca", {"instruction": "x", "output": "y", "history": [["a", "b"]]}),
        ("alpaca", {"instruction": "x", "output": "y", "system": "Be brief."}),
        ("conversations", {"text": "x"}), ("conversations", turns()), ("conversations", {"messages": ["hi"]}),
        ("conversations", turns(("user", "a"))), ("conversations", turns(("assistant", "a"))),
        ("conversations", turns(("narrator", "a"))), ("conversations", turns((["user"], "a"))),
        ("conversations", {"conversations": [{"from": "human", "value": ""}]}),
        ("conversations", {"conversations": [{"from": "human", "value": "\ud800"}]}),
        ("conversations", {"messages": ANSWERED, "system": "Be brief."}),
        ("conversations", {"messages": ANSWERED, "tools": "[{}]"}),
        ("conversations", {"messages": [ANSWERED[0], ANSWERED[1] | {"reasoning_content": "Hm."}]}),
        ("conversations", {"messages": [*ANSWERED, {**ANSWERED[1], "tool_calls": [{"id": "1"}]}]}),
    ],
)  # fmt: skip
def test_a_row_that_is_no_conversation_is_a_bad_line(tmp_path, kind, row):
    assert [(type(result), result.line) for result in read(tmp_path, row, kind=kind)] == [(BadLine, 1)]


def test_keys_that_are_not_read_may_be_empty(tmp_path):
    empty = {"system": "", "tools": "[]", "history": []}
    turns = [message | {"tool_calls": {}, "reasoning_content": ""} for message in ANSWERED]
    rows = read(tmp_path, {"messages": turns, **empty})
    rows += read(tmp_path, {"instruction": "How many?", "output": "Two.", **empty}, kind="alpaca")
    assert [row.turns for row in rows] == [TURNS[:2]] * 2


@pytest.mark.parametrize("over_long", ["drop", "truncate"])
def test_rows_have_an_additional_id_and_every_dropped_row_is_named(tmp_path, directory, over_long):
    long = {"instruction": "How many?" * 300, "input": "", "output": "Two."}
    chatty = {"instruction": "How many?", "input": "", "output": "Two. " * 100}
    short = {"instruction": "How many?", "input": "", "output": "<|im_end|>Two."}
    source = tmp_path / "rows.json"
    source.write_text(json.dumps([short, long, chatty, {"instruction": "x"}]))
    card = tokenize_path(encoder(directory, "alpaca", over_long=over_long), source, tmp_path / "out")["rows"]
    columns = read_columns(tmp_path / "out" / "rows.mindrecord", ["input_ids", "labels"])
    retained = 2 if over_long == "truncate" else 1
    assert {name: (values.shape, values.dtype.name) for name, values in columns.items()} == dict.fromkeys(
        ("input_ids", "labels"), ((retained, 201), "int32")
    )
    assert card["truncated"] == ({"input_ids": 1} if over_long == "truncate" else {})
    ledger = (tmp_path / "out" / "rows.dropped.jsonl").read_text().splitlines()
    lost = {entry["line"]: entry["reason"] for entry in map(json.loads, ledger)}
    assert lost[4].startswith("has no key 'output'")
    if over_long == "truncate":
        assert lost[2] == "no word of the assistant lies within tokenize.sft_length"
    else:
        assert lost[2] == lost[3] == "the conversation is longer than tokenize.sft_length"
    labels, ids = columns["labels"][0], columns["input_ids"][0]
    assert (labels[ids == ids[-1]] == -100).all()  # padding
    assert card["samples"][0]["learnt"] == "<|im_end|>Two.<|im_end|>"


@needs_shared
@pytest.mark.parity
def test_ids_and_mask_are_those_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(QWEN)
    # transformers tells what the assistant says only where a template marks it
    content = "message['content'] + '<|im_end|>'"
    marked = CHAT_TEMPLATE.replace(
        "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}",
        "{{- '<|im_start|>' + message['role'] + '\\n' }}{%- if message['role'] == 'assistant' %}"
        f"{{% generation %}}{{{{- {content} }}}}{{% endgeneration %}}{{%- else %}}{{{{- {content} }}}}"
        "{%- endif %}{{- '\\n' }}",
    )
    assert marked != CHAT_TEMPLATE
    encode_with = encoder(QWEN, system_prompt="Be brief.")
    for number, texts in enumerate((("2+2?", "4"), ("a\n\n", "Two words.", "é 数", "#### 1,000 \n"))):
        turns = [Turn(("user", "assistant")[i % 2], text) for i, text in enumerate(texts)]
        (example,), _ = encode(encode_with, [Conversation(number, tuple(turns))])
        messages = [{"role": "system", "content": "Be brief."}]
        messages += [{"role": turn.role, "content": turn.content} for turn in turns]
        assert example.ids == reference.apply_chat_template(messages, return_dict=False)
        expected = reference.apply_chat_template(
            messages, chat_template=marked, return_dict=True, return_assistant_tokens_mask=True
        )
        assert [int(label != -100) for label in example.labels] == expected["assistant_masks"]
