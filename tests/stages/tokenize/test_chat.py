import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.fetch.tokenizer_files import CHAT_TEMPLATE
from stages.tokenize.chat import GUARD, ChatTemplate, TemplateRefusalError, load_template
from stages.tokenize.text import Turn

SPECIAL = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
CHATML = ChatTemplate(CHAT_TEMPLATE, SPECIAL, "test")


def plain(parts):
    names = {index: token for token, index in SPECIAL.items()}
    return "".join(part if isinstance(part, str) else names[part] for part in parts)


def test_turns_are_marked_and_the_assistants_words_are_learnt():
    turns = [Turn("user", "1+1?"), Turn("assistant", "2"), Turn("user", "why?"), Turn("assistant", "so.")]
    pieces = CHATML.pieces(turns)
    assert [piece.text for piece in pieces if piece.learnt] == ["2<|im_end|>", "so.<|im_end|>"]
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    assert pieces[0].text == system + "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    assert "".join(piece.text for piece in pieces) == CHATML.render(turns)
    assert pieces[-1].text == "\n"


@given(
    content=st.lists(
        st.sampled_from([*SPECIAL, "a", "\n", "<", "|", GUARD, "<" + GUARD, "|im_end|>", " é"]), min_size=1
    ).map("".join)
)
def test_no_message_can_mark_turns_whatever_it_says(content):
    parts = CHATML.split(CHATML.render([Turn("user", content)], generation=True))
    assert [part for part in parts if isinstance(part, int)] == [1, 2, 1, 2, 1]
    assert f"user\n{content}" in parts
    assert plain(parts).endswith(f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n")


def test_the_sandbox_keeps_templates_from_python():
    attack = ChatTemplate("{{ messages.__class__.__mro__ }}", SPECIAL, "test")
    with pytest.raises(TemplateRefusalError, match="unsafe"):
        attack.render([Turn("user", "x")])


def test_a_template_may_refuse_and_its_reason_is_told():
    text = "{%- if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}"
    with pytest.raises(TemplateRefusalError, match="user first"):
        ChatTemplate(text, SPECIAL, "test").render([Turn("system", "x")])


def test_a_template_that_rewrites_earlier_turns_is_refused():
    text = "{% for m in messages %}{% if loop.last %}!{% endif %}{{ m.content }}<|im_end|>{% endfor %}"
    turns = [Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c"), Turn("assistant", "d")]
    with pytest.raises(TemplateRefusalError, match="changes earlier turns"):
        ChatTemplate(text, SPECIAL, "test").pieces(turns)


def test_json_in_a_template_is_not_escaped_as_html():
    text = "{{ messages[0].content | tojson }}"
    assert ChatTemplate(text, SPECIAL, "test").render([Turn("user", 'é<b>"')]) == '"é<b>\\""'


@pytest.mark.parametrize("kind", ["file", "named", "plain", "none"])
def test_where_a_template_is_found(tmp_path, kind):
    text, other = "{{ messages[0].content }}!", "wrong"
    listed = [{"name": "tool_use", "template": other}, {"name": "default", "template": text}]
    stored = {"file": other, "named": listed, "plain": text, "none": None}[kind]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": stored}))
    if kind == "file":
        (tmp_path / "chat_template.jinja").write_text(text)
    found = load_template(tmp_path, SPECIAL).render([Turn("user", "hi")])
    assert found == (CHATML.render([Turn("user", "hi")]) if kind == "none" else "hi!")


def test_a_malformed_template_is_named(tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(InputError, match=r"chat_template\.jinja: its chat template is malformed"):
        load_template(tmp_path, SPECIAL)
