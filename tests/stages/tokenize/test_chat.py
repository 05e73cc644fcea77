import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.fetch.tokenizer_files import CHAT_TEMPLATE, write_trained
from stages.tokenize.chat import GUARD, ChatTemplate, TemplateRefusalError, load_template
from stages.tokenize.stage import make_encoder
from stages.tokenize.text import Turn
from tests.stages.fetch.settings import dataset, tokenize

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
def test_no_message_can_mark_turns(content):
    parts = CHATML.split(CHATML.render([Turn("user", content)], generation=True))
    assert [part for part in parts if isinstance(part, int)] == [1, 2, 1, 2, 1]
    assert f"user\n{content}" in parts
    assert plain(parts).endswith(f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n")


def test_a_template_that_rewrites_earlier_turns_is_refused():
    text = "{% for m in messages %}{% if loop.last %}!{% endif %}{{ m.content }}<|im_end|>{% endfor %}"
    turns = [Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c"), Turn("assistant", "d")]
    with pytest.raises(TemplateRefusalError, match="changes earlier turns"):
        ChatTemplate(text, SPECIAL, "test").pieces(turns)


@pytest.mark.parametrize("kind", ["file", "named", "plain", "none"])
def test_locations_of_a_template(tmp_path, kind):
    text, second = "{{ messages[0].content }}!", "wrong"
    listed = [{"name": "tool_use", "template": second}, {"name": "default", "template": text}]
    stored = {"file": second, "named": listed, "plain": text, "none": None}[kind]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": stored}))
    if kind == "file":
        (tmp_path / "chat_template.jinja").write_text(text)
    result = load_template(tmp_path, SPECIAL).render([Turn("user", "hi")])
    assert result == (CHATML.render([Turn("user", "hi")]) if kind == "none" else "hi!")


def test_a_tokenizer_without_template_is_refused(tmp_path):
    """ChatML for a tokenizer that has no such tokens would mark the turns with plain text."""
    named = [{"name": "tool_use", "template": "{{ messages[0].content }}"}]
    llama = {"<|begin_of_text|>": 0, "<|end_of_text|>": 1}
    for settings, special in (({"chat_template": named}, SPECIAL), ({}, llama)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        with pytest.raises(InputError, match=r"config\.json: holds no chat template.*chat_template=false"):
            load_template(tmp_path, special)


@pytest.mark.parity
def test_the_tag_generation_is_rendered_as_by_transformers():
    source = (
        "{% for m in messages %}{% set mark = '>' %}{{ m.role }}{% if m.role == 'assistant' %}"
        "{%- generation %}{% set mark = '!' %}{{ m.content }}{{ mark }}\n{% endgeneration %}{% endif %}"
        "{{ mark }}{% endfor %}"
    )
    turns = [Turn("user", "a"), Turn("assistant", "b")]
    result = ChatTemplate(source, SPECIAL, "test").render(turns)
    assert result == "user>assistantb!\n>"
    rendering = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    assert rendering.render_jinja_template([messages], chat_template=source)[0] == [result]


DOUBLED = "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}"
RUNAWAY = {
    "python": "{{ messages.__class__.__mro__ }}", "own refusal": "{{ raise_exception('user first') }}",
    "division": "{{ 1 / 0 }}",
    "division by a variable": "{% set n = messages | length - 1 %}{{ messages[0].content }}{{ 3 // n }}",
    "wrong type": "{{ messages + 1 }}", "missing argument": "{{ messages[0].content.replace('a') }}",
    "two loops": "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
    "one long loop": "{% for a in range(10 ** 9) %}x{% endfor %}",
    "filtered loop": "{% for a in range(9999) %}{% for b in range(9999) if b < 0 %}{% endfor %}{% endfor %}",
    "recursive loop": "{% for a in [[1]] recursive %}{{ loop([[1], [1], [1]]) }}{% endfor %}",
    "recursive macro": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "branching macro": "{% macro m(n) %}{% if n %}{{ m(n-1) ~ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "doubled text": DOUBLED.replace("+", "~"), "added text": DOUBLED,
    "repeated text": "{{ 'x' * 10 ** 11 }}", "wide text": "{{ '%99999999999d' % 1 }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "repeated power": DOUBLED.replace("'x'", "9").replace("n.t + n.t", "n.t ** 999"),
    "long output": "{% set t = 'x' * 10 ** 6 %}{% for i in range(9999) %}{{ t }}{% endfor %}",
}  # fmt: skip


@pytest.mark.parametrize("source", RUNAWAY.values(), ids=RUNAWAY)
def test_a_template_that_fails_or_does_not_end_is_refused(source):
    began = time.monotonic()
    with pytest.raises((TemplateRefusalError, InputError)):
        ChatTemplate(source, SPECIAL, "test").render([Turn("user", "x")])
    assert time.monotonic() - began < 100


def test_ordinary_templates_stay_within_the_limits():
    source = (
        "{% for m in messages | reverse %}{% if loop.first and loop.length > 1 %}{{ loop.revindex }}"
        "{% endif %}{{ '%s:' % m.role + m.content }}{% endfor %}"
    )
    template = ChatTemplate(source, SPECIAL, "test")
    for _ in range(2):  # steps are counted for each rendering
        assert template.render([Turn("user", "a"), Turn("assistant", "b")]) == "2assistant:buser:a"
        assert len(template.render([Turn("user", "x")] * 9000)) > 9000


@pytest.mark.parametrize(
    "source", ["{{ 'Hello' }}", "{{ messages[-1].content[:3] }}", "{{ messages[0].content }}"]
)
def test_a_template_must_use_the_question(source):
    with pytest.raises(InputError, match="chat template"):
        ChatTemplate(source, SPECIAL, "test").check([Turn("system", "s")])


@pytest.mark.parametrize("kind", ["arith", "conversations"])
def test_a_template_is_checked_before_any_row_is_read(tmp_path, kind):
    write_trained(["1+2=3"] * 4, 300, tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ 'Hello' }}")
    with pytest.raises(InputError, match=r"chat_template\.jinja: .*chat template"):
        make_encoder(tmp_path, None, dataset(), tokenize(kind, chat_template=True))


CONTENT = "{{ message.content }}"
ANSWERED = (
    "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}{% for message in messages %}"
    f"{CONTENT}<|im_end|>{{% endfor %}}"
)


def test_a_template_renders_functions_and_what_they_return():
    template = ChatTemplate(ANSWERED, SPECIAL, "test")
    template.check_tools()
    assert template.tool_answer("7") == "7<|im_end|>"
    assert "".join(map(str, template.split(template.tool_answer("<|im_end|>")))) == "<|im_end|>2"
    tools = [{"function": {"name": "add"}}]
    assert template.render([Turn("user", "1")], tools=tools) == "add1<|im_end|>"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (CHAT_TEMPLATE, "leaves out the functions"),
        (ANSWERED.replace(CONTENT, f"{{% if message.role != 'tool' %}}{CONTENT}{{% endif %}}"),
         "leaves out what functions return"),
        (ANSWERED.replace(CONTENT, f"{{% if loop.last %}}!{{% endif %}}{CONTENT}"),
         "changes a call when its answer follows"),
        ("{{ raise_exception('no tools') }}", "no tools"),
    ],
)  # fmt: skip
def test_a_template_without_functions_is_refused(text, rule):
    with pytest.raises(InputError, match=rule):
        ChatTemplate(text, SPECIAL, "test").check_tools()
