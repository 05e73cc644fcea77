"""A question through the exported template has the ids of training's prompt, with transformers."""

import json
import shutil

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stages.export.stage import write_template, write_tokenizer
from stages.export.template import chat_template, literal
from stages.fetch.config import BASE_TEMPLATE
from stages.fetch.records import Row
from stages.fetch.tokenizer_files import CHAT_TEMPLATE, write_trained
from stages.tokenize.chat import ChatTemplate, load_template
from stages.tokenize.stage import make_encoder
from tests.stages.fetch.settings import ROOT, dataset, tokenize, values
from tests.stages.tokenize.test_encode import beginning_with, with_think

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity
PIECES = ["Tom", " has 3", "####", "12 + 3", "\n", "\r\n", "\r", " ", "é", "'", '"', "\\", "\\n", "{{ x }}",
          "{%", "%}", "{#", "</think>", "<think>", "<|", "答", "\u2028", "🙂"]  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
RECIPES = {
    file.stem: section
    for file in sorted((ROOT / "conf" / "tokenize").glob("*.yaml"))
    if (section := values("tokenize", file.stem))["kind"] == "grpo"
}
COMPAT = {"compat": "mindrlhf", "chat_template": False}


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Tokenizers in the ways of Qwen2.5, Qwen3 and Llama 3, with merges that begin with '#'."""
    made = {}
    for name in ("qwen2", "qwen3", "llama3"):
        made[name] = tmp_path_factory.mktemp(name)
        write_trained(["how many apples has Tom", "<think>", "1+1=2\n#### 2"] * 3, 300, made[name])
    with_think(made["qwen3"])
    beginning_with(made["llama3"], "<|endoftext|>")
    return made


@pytest.fixture(scope="module")
def tokenizers(directories):
    return {name: transformers.AutoTokenizer.from_pretrained(path) for name, path in directories.items()}


def prompt_of(encoder, question):
    (row,), _ = encoder.encode([Row(1, question, "#### 1")], with_answers=False)
    return row.prompt


def rendered(tokenizer, question, **options):
    turns = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False, **options)


def check(directories, tokenizers, family, question, settings):
    assume(question.strip() and (settings["chat_template"] or settings.get("enable_thinking") is None))
    encoder = make_encoder(directories[family], None, dataset(solution="answer"), tokenize(**settings))
    result = rendered(tokenizers[family], question, chat_template=chat_template(encoder))
    assert result == prompt_of(encoder, question)


@given(
    family=st.sampled_from(["qwen2", "qwen3", "llama3"]),
    question=TEXT,
    chat=st.booleans(),
    system=TEXT,
    suffix=TEXT,
    thinking=st.sampled_from([None, True, False]),
)
def test_all_settings(directories, tokenizers, family, question, chat, system, suffix, thinking):
    settings = {"chat_template": chat, "system_prompt": system, "prompt_suffix": suffix}
    settings["enable_thinking"] = thinking if chat and family == "qwen3" else None
    check(directories, tokenizers, family, question, RECIPES["arith"] | settings)


@given(question=TEXT)
@example(question="#### 2")
def test_mindrlhfs_records_need_its_tokenizer_too(directories, exported_compat, question):
    assume(question.strip())
    encoder = make_encoder(
        directories["qwen2"], None, dataset(solution="answer"), tokenize(**RECIPES["arith"] | COMPAT)
    )
    assert rendered(exported_compat, question) == prompt_of(encoder, question)


@pytest.fixture(scope="module")
def exported_compat(directories, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "compat"
    shutil.copytree(directories["qwen2"], out)
    encoder = make_encoder(out, None, dataset(), tokenize(**RECIPES["arith"] | COMPAT))
    write_tokenizer(encoder, out)
    write_template(chat_template(encoder), out)
    reference = transformers.AutoTokenizer.from_pretrained(out)
    usual = transformers.AutoTokenizer.from_pretrained(directories["qwen2"])
    assert reference("#### 2")["input_ids"] != usual("#### 2")["input_ids"]
    return reference


def test_training_an_exported_model_further_adds_no_second_suffix(directories, tmp_path):
    """The exported template adds the suffix, and training renders with the exported settings."""
    out = tmp_path / "out"
    shutil.copytree(directories["qwen2"], out)
    settings = tokenize(**RECIPES["openr1_math"])
    first = make_encoder(out, None, dataset(solution="answer"), settings)
    template, prompt = chat_template(first), prompt_of(first, "1+1?")
    write_template(template, out)
    assert (out / BASE_TEMPLATE).read_text() == CHAT_TEMPLATE == load_template(out, {}).source
    reference = transformers.AutoTokenizer.from_pretrained(out)
    stored = json.loads((out / "tokenizer_config.json").read_text())["chat_template"]
    assert rendered(reference, "1+1?") == prompt and stored == reference.chat_template
    again = make_encoder(out, None, dataset(solution="answer"), settings)
    assert prompt_of(again, "1+1?") == prompt and chat_template(again) == template
    write_template(template, out)
    assert (out / BASE_TEMPLATE).read_text() == CHAT_TEMPLATE


def test_a_conversation_keeps_its_system_message_and_each_question_gets_the_suffix(directories, tokenizers):
    template, without_turns = (
        chat_template(make_encoder(directories["qwen2"], None, dataset(), tokenize(**RECIPES[name])))
        for name in ("openr1_math", "arith")
    )
    turns = [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}]
    turns += [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    text = tokenizers["qwen2"].apply_chat_template(turns, chat_template=template, tokenize=False)
    suffix = RECIPES["openr1_math"]["prompt_suffix"]
    assert text.startswith("<|im_start|>system\nS<|im_end|>") and text.count("system") == 1
    assert [f"user\n{message}{suffix}<|im_end|>" in text for message in "ac"] == [True, True]
    with pytest.raises(Exception, match="bare questions"):
        tokenizers["qwen2"].apply_chat_template(turns, chat_template=without_turns)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_a_literal(text):
    assert ChatTemplate(f"{{{{ {literal(text)} }}}}", {}, "test").render([]) == text
