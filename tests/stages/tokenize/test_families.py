"""Thinking and begin tokens: the ids of transformers, of templates in Qwen3's and in Llama's way."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, processors

from stages.base.errors import InputError
from stages.fetch.jsonl import Row
from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.chat import load_template
from stages.tokenize.stage import make_encoder
from stages.tokenize.text import Turn
from tests.stages.fetch.settings import dataset, tokenize

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


@pytest.fixture
def directory(tmp_path):
    write_trained(["how many apples has Tom", "<think>", "1+1=2\n#### 2"], 300, tmp_path)
    return tmp_path


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
    assert by_grpoflow(directory, TURNS, True, thinking) == by_transformers(
        directory, TURNS, True, **variables
    )
    assert by_grpoflow(directory, ANSWERED, False, thinking) == by_transformers(
        directory, ANSWERED, False, **variables
    )
    assert (by_grpoflow(directory, TURNS, True, False) == by_grpoflow(directory, TURNS, True, thinking)) == (
        thinking is False
    )


def test_enable_thinking_needs_a_template_that_uses_it(directory):
    with pytest.raises(InputError, match="enable_thinking"):
        load_template(directory, {}, False)


def test_the_begin_token_stands_before_texts_and_in_the_template(directory):
    beginning_with(directory, "<|endoftext|>")
    result = by_grpoflow(directory, TURNS, True)
    begin = Tokenizer.from_file(str(directory / "tokenizer.json")).token_to_id("<|endoftext|>")
    assert (
        result == by_transformers(directory, TURNS, True)
        and result.index(begin) == 0
        and result.count(begin) == 1
    )
    plain = make_encoder(directory, None, dataset(), tokenize("arith"))
    (row,), _ = plain.encode([Row(1, "1+1", "2\n#### 2")], with_answers=True)
    transformers = pytest.importorskip("transformers")
    expected = transformers.AutoTokenizer.from_pretrained(directory)("1+1\n")["input_ids"]
    assert row.prompt == expected and row.prompt[0] == begin and begin not in [*row.answer, *row.solution]
