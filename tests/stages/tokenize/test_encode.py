"""Ids and masks of rows and conversations; thinking and begin tokens as transformers renders them."""

import json

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, processors

from stages.base.errors import InputError
from stages.fetch.records import Row
from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.chat import load_template
from stages.tokenize.stage import make_encoder
from stages.tokenize.stream import sft_examples
from stages.tokenize.text import Turn
from stages.tokenizer import load
from tests.stages.fetch.settings import QWEN, dataset, needs_shared, tokenize

THINKING = (
    "{%- for m in messages %}{%- set said = m.content.split('</think>')[-1].lstrip('\\n') %}"
    "{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and loop.last %}"
    "{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}"
    "{{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}"
    "{%- endif %}{{- said + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}{%- endif %}"
)
BEGINNING = (
    "{{- bos_token }}{%- for m in messages %}"
    "{{- '<|im_start|>' + m['role'] + '\\n\\n' + m['content'] | trim + '<|im_end|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n\\n' }}{%- endif %}"
)
TURNS = [Turn("system", "Be short."), Turn("user", " How many <think> in </think>? ")]
ANSWERED = [*TURNS, Turn("assistant", "<think>\nTwo tags.\n</think>\n\nNone.")]
ROWS = [Row(1, "Tom has 3 and 4 apples.", "3+4=7\n#### 7"), Row(2, "Ann has 12 pens.", "#### 12")]


@pytest.fixture
def directory(tmp_path):
    texts = [text for row in ROWS for text in (row.prompt + "\n", row.answer)]
    write_trained([*texts * 3, "how many apples", "<think>", "1+1=2\n#### 2"], 400, tmp_path)
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


def describe(directory, template, **settings):
    """Write tokenizer_config.json's template and what else it says."""
    file = directory / "tokenizer_config.json"
    values = json.loads(file.read_text()) | {"chat_template": template} | settings
    file.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def with_think(directory):
    """Qwen3's <think> is an added token that is not special."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.add_tokens(
        [AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    describe(directory, THINKING, added_tokens_decoder=None)


def beginning_with(directory, token):
    """Return a tokenizer that, like Llama 3's, adds a begin token."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    template = processors.TemplateProcessing(
        f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))]
    )
    tokenizer.post_processor = template
    tokenizer.save(str(directory / "tokenizer.json"))
    describe(directory, BEGINNING, bos_token=token, tokenizer_class="PreTrainedTokenizerFast")


def by_transformers(directory, turns, generation, **variables):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=generation, return_dict=False, **variables
    )


def by_grpoflow(directory, turns, generation, thinking=None):
    config = tokenize("arith", chat_template=True, enable_thinking=thinking)
    encoder = make_encoder(directory, None, dataset(), config)
    return encoder.batch_parts([encoder.template.split(encoder.template.render(turns, generation))])[0]


@pytest.mark.parametrize("thinking", [None, True, False])
def test_thinking_on_and_off(directory, thinking):
    with_think(directory)
    variables = {} if thinking is None else {"enable_thinking": thinking}
    for case in ((TURNS, True), (ANSWERED, False)):
        assert by_grpoflow(directory, *case, thinking) == by_transformers(directory, *case, **variables)
    off = by_grpoflow(directory, TURNS, True, False)
    assert (off == by_grpoflow(directory, TURNS, True, thinking)) == (thinking is False)


def test_enable_thinking_needs_a_template_that_uses_it(directory):
    with pytest.raises(InputError, match="enable_thinking"):
        load_template(directory, {}, False)


def test_the_begin_token_stands_before_texts_and_in_the_template(directory):
    beginning_with(directory, "<|endoftext|>")
    result = by_grpoflow(directory, TURNS, True)
    begin = Tokenizer.from_file(str(directory / "tokenizer.json")).token_to_id("<|endoftext|>")
    assert result == by_transformers(directory, TURNS, True)
    assert result.index(begin) == 0 and result.count(begin) == 1
    plain = make_encoder(directory, None, dataset(), tokenize("arith"))
    (row,), _ = plain.encode([Row(1, "1+1", "2\n#### 2")], with_answers=True)
    transformers = pytest.importorskip("transformers")
    expected = transformers.AutoTokenizer.from_pretrained(directory)("1+1\n")["input_ids"]
    assert row.prompt == expected and row.prompt[0] == begin and begin not in [*row.answer, *row.solution]
