import json

import numpy as np
import pytest

from stages.fetch.jsonl import Row
from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.stage import make_encoder
from stages.tokenize.stream import sft_examples
from stages.tokenizer import load
from tests.stages.fetch.settings import QWEN, dataset, needs_shared, tokenize

ROWS = [Row(1, "Tom has 3 and 4 apples.", "3+4=7\n#### 7"), Row(2, "Ann has 12 pens.", "#### 12")]


@pytest.fixture
def directory(tmp_path):
    write_trained([text for row in ROWS for text in (row.prompt + "\n", row.answer)] * 3, 400, tmp_path)
    return tmp_path


def encoder(directory, data=None, **changes):
    changes = {"max_prompt_length": 20, "seq_length": 6, "sft_length": 32} | changes
    return make_encoder(directory, None, data or dataset(), tokenize(**changes))


def test_the_loss_mask_covers_the_ground_truth(directory):
    encode = encoder(directory)
    rows, _ = encode.encode(ROWS, with_answers=False)
    assert encode.grpo_columns(rows)["loss_mask"].tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]


def test_supervised_labels_cover_answer_and_end_only(directory):
    encode = encoder(directory)
    rows, _ = encode.encode(ROWS, with_answers=True)
    (example,) = sft_examples(encode, rows[:1])
    ids, labels = np.array(example.ids), np.array(example.labels)
    learnt = labels != -100
    assert (labels[learnt] == ids[learnt]).all()
    assert encode.tokenizer.decode(ids[learnt][:-1]) == "3+4=7\n#### 7"
    assert ids[-1] == encode.ids.eos[0]
    assert encode.tokenizer.decode(ids[: learnt.argmax()]) == "Tom has 3 and 4 apples.\n"
    # the prompt's ids are those of the rollout, whatever follows
    prompt = encode.grpo_columns(rows)["prompt_ids"][0]
    assert (ids[: learnt.argmax()] == prompt[prompt != encode.ids.pad]).all()


@pytest.mark.parametrize(
    ("changes", "ends", "expected"),
    [
        ({}, ("endoftext", "im_end"), "endoftext"),
        ({"chat_template": True}, ("endoftext", "im_end"), "im_end"),
        ({"chat_template": True}, ("endoftext",), "endoftext"),
    ],
)
def test_an_answer_ends_as_in_the_chat_template(directory, changes, ends, expected):
    """Llama 3's generation_config.json names <|end_of_text|> first, but its turns end with <|eot_id|>."""
    ids = {name: load(directory).token_to_id(f"<|{name}|>") for name in ("endoftext", "im_end")}
    listed = {"eos_token_id": [ids[name] for name in ends]}
    (directory / "generation_config.json").write_text(json.dumps(listed))
    encode = encoder(directory, **changes)
    rows, _ = encode.encode(ROWS, with_answers=True)
    assert {example.ids[-1] for example in sft_examples(encode, rows)} == {ids[expected]}


def test_special_tokens_in_a_text_stay_text(directory):
    encode = encoder(directory, max_prompt_length=64)
    row = Row(1, "a<|endoftext|>b<|im_end|>", "<|im_start|>\n#### 1")
    (encoded,), _ = encode.encode([row], with_answers=True)
    special = set(encode.ids.eos) | {encode.ids.pad, encode.tokenizer.token_to_id("<|im_start|>")}
    assert not special & {*encoded.prompt, *encoded.answer}
    assert encode.tokenizer.decode(encoded.prompt, skip_special_tokens=False) == row.prompt + "\n"


def test_compat_masks_are_those_of_rlhf_data(directory):
    encode = encoder(directory, compat="mindrlhf", max_prompt_length=4, seq_length=6)
    rows, _ = encode.encode([Row(1, "12", "#### 34567890"), Row(2, "123456", "x")], with_answers=False)
    columns = encode.grpo_columns(rows)
    pad_id = encode.ids.pad
    # truth of 6 (cut) and 1 tokens; then zero over the prompt's 2 and 4 (cut) tokens
    assert columns["loss_mask"].tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, pad_id, pad_id]]
    assert encode.tokenizer.decode(columns["pretrain_ids"][0]) == "345678"
    assert encode.tokenizer.decode(columns["prompt_ids"][1]) == "1234"


@needs_shared
@pytest.mark.parity
@pytest.mark.parametrize("system", ["You are a helpful assistant.", "Be brief."])
def test_the_chat_template_gives_the_ids_of_transformers(system):
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(QWEN)
    encode = encoder(QWEN, chat_template=True, system_prompt=system, prompt_suffix="\nThink.")
    for question in ("How many?", "\n\nTwo lines\n", " 12 + 3 é"):
        (row,), _ = encode.encode([Row(1, question, "#### 1")], with_answers=False)
        turns = [{"role": "system", "content": system}, {"role": "user", "content": question + "\nThink."}]
        expected = reference.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert row.prompt == list(expected)
