"""The tokenizer's chat template: messages to text, and the text to pieces that can be encoded.

A template marks turns with special tokens. The same characters inside a message are plain text; they are
escaped while the template runs, so that no message can end its turn or begin another.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from stages.base.errors import InputError
from stages.base.files import read_optional_object, read_text, understood
from stages.fetch.config import BASE_TEMPLATE, TEMPLATE
from stages.fetch.tokenizer_files import CHAT_TEMPLATE
from stages.tokenize.sandbox import Sandbox
from stages.tokenize.text import Turn
from stages.tokenizer import IM_END, IM_START

GUARD = "\ufdd0"  # a code point that Unicode reserves for internal use
QUESTION = "How many are 12 + 30 apples?"
"""Question that every template must render."""
PROBE = "grpoflow_probe"
TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": PROBE,
        "description": "A function.",
        "parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "A text."}}},
    },
}
"""Function with which a template is checked."""
GUARDED = re.compile(f"{GUARD}({GUARD}?)")


@dataclass(frozen=True)
class Piece:
    """Part of a rendered conversation."""

    text: str
    """Still escaped."""
    learnt: bool
    """True for the assistant's words and the token that ends its turn."""


class TemplateRefusalError(ValueError):
    """The template can't render these messages (for example, two turns of one role in a row)."""


class ChatTemplate:
    """A chat template; renders conversations like transformers' apply_chat_template.

    Source: huggingface/transformers v5.12.1, utils/chat_template_utils.py (sandbox, whitespace rules,
    tojson and raise_exception). There is no strftime_now: templates with today's date, such as Llama 3.2's,
    then use a fixed date, and ids do not change from day to day.
    """

    def __init__(
        self, source: str, special: Mapping[str, int], path: Path, variables: Mapping[str, Any] | None = None
    ) -> None:
        """Compile a template. Raise InputError if it is malformed."""
        self.source, self.path = source, path
        self._special, self._variables = dict(special), dict(variables or {})
        tokens = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
        self._tokens = re.compile(f"({tokens})" if tokens else r"(?!)")
        environment = Sandbox()
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.compile_limited(source)
        except (TemplateError, ArithmeticError, RecursionError, ValueError) as error:
            raise InputError(path, None, f"its chat template is malformed: {error}") from error

    def render(
        self,
        turns: Sequence[Turn],
        generation: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return the escaped text of a conversation. Raise TemplateRefusalError if the template fails.

        `tools`: descriptions of functions that the assistant may call, in OpenAI's format.
        """
        messages = [{"role": turn.role, "content": self._escape(turn.content)} for turn in turns]
        return self._rendered(messages, generation, tools)

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        generation: bool,
        tools: Sequence[Mapping[str, Any]] | None,
    ) -> str:
        try:
            return self._template.render(
                messages=messages,
                tools=tools,  # None is defined, as in transformers: a template may ask `tools is not none`
                documents=None,
                add_generation_prompt=generation,
                **self._variables,
            )
        except Exception as error:  # a template's expressions may raise anything
            reason = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
            raise TemplateRefusalError(f"the chat template refuses it: {reason}") from error

    def check(self, before: Sequence[Turn] = ()) -> None:
        """Refuse a template that fails for a plain question after the turns `before`, or leaves it out."""
        remedy = "correct it, change tokenize.system_prompt, or set tokenize.chat_template=false"
        try:
            text = self.render([*before, Turn("user", QUESTION)], generation=True)
        except TemplateRefusalError as error:
            raise InputError(self.path, None, str(error), remedy) from error
        if QUESTION not in text:
            raise InputError(self.path, None, "its chat template leaves out the user's question", remedy)

    def check_tools(self) -> None:
        """Refuse a template that leaves out functions, or what they return."""
        remedy = "use a model whose template knows tools, such as Qwen2.5-Instruct"
        try:
            described = self.render([Turn("user", QUESTION)], True, [TOOL])
            answered = self.tool_answer(QUESTION)
        except TemplateRefusalError as error:
            raise InputError(self.path, None, str(error), remedy) from error
        if PROBE not in described:
            rule = "its chat template leaves out the functions that the model may call"
            raise InputError(self.path, None, rule, remedy)
        if QUESTION not in answered:
            raise InputError(self.path, None, "its chat template leaves out what functions return", remedy)

    def tool_answer(self, content: str) -> str:
        """Return the escaped text between a call and the next turn if the function returns `content`.

        Raise TemplateRefusalError if the template refuses, or renders the call differently before an answer.
        """
        call = {"id": "call_0", "type": "function", "function": {"name": PROBE, "arguments": {}}}
        before: list[Mapping[str, Any]] = [
            {"role": "system", "content": ""},
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        answer = {"role": "tool", "content": self._escape(content), "tool_call_id": "call_0"}
        prefix = self._rendered(before, False, [TOOL])
        text = self._rendered([*before, answer], True, [TOOL])
        if not text.startswith(prefix):
            raise TemplateRefusalError("the chat template changes a call when its answer follows")
        return text[len(prefix) :]

    def pieces(self, turns: Sequence[Turn]) -> list[Piece]:
        """Split a conversation at the assistant's turns.

        A turn's piece begins where its prompt ends, so that the ids are those of a rollout. The line break
        that Qwen2's template puts after the end token is not learnt, because nothing is generated there.
        Raise TemplateRefusalError if the template refuses, or renders earlier turns differently later on.
        """
        text = self.render(turns)
        pieces, at = [], 0
        for number, turn in enumerate(turns):
            if turn.role != "assistant":
                continue
            before = self.render(turns[:number], generation=True)
            upto = text if number == len(turns) - 1 else self.render(turns[: number + 1])
            if not (upto.startswith(before) and text.startswith(upto)):
                raise TemplateRefusalError("the chat template changes earlier turns when another follows")
            ends = [match.end() for match in self._tokens.finditer(upto, len(before))]
            end = ends[-1] if ends else len(upto)
            pieces += [Piece(text[at : len(before)], False), Piece(text[len(before) : end], True)]
            at = end
        return [*pieces, Piece(text[at:], False)]

    def split(self, text: str) -> list[str | int]:
        """Split escaped text into plain text (str, not empty) and special tokens (int)."""
        parts = self._tokens.split(text)
        plain = (GUARDED.sub(r"\1", part) for part in parts[::2])
        ids = [self._special[part] for part in parts[1::2]]
        result: list[str | int] = []
        for words, token in zip(plain, [*ids, None], strict=True):
            result += [words] if words else []
            result += [] if token is None else [token]
        return result

    def _escape(self, content: str) -> str:
        content = content.replace(GUARD, GUARD * 2)
        return self._tokens.sub(lambda match: match[0][0] + GUARD + match[0][1:], content)


def load_template(
    directory: Path, special: Mapping[str, int], enable_thinking: bool | None = None
) -> ChatTemplate:
    """Load a tokenizer's chat template from its file, else from tokenizer_config.json.

    For an exported model this is its base's template: the exported one already contains the settings of
    section tokenize, which would be applied twice. A tokenizer with ChatML's tokens needs no template.

    Raises:
        InputError: there is none, it is malformed, or it does not use enable_thinking, which is set.
    """
    settings_file = directory / "tokenizer_config.json"
    files = [file for name in (BASE_TEMPLATE, TEMPLATE) if (file := directory / name).is_file()]
    path, settings = [*files, settings_file][0], read_optional_object(settings_file)
    with understood(path, "a chat template"):
        source, tokens = read_text(path) if files else default_template(settings), named_tokens(settings)
    if not source:
        if source is not None or not special.keys() >= {IM_START, IM_END}:
            remedy = f"give {directory / TEMPLATE}, or set tokenize.chat_template=false"
            raise InputError(path, None, "holds no chat template (of several: none named default)", remedy)
        source = CHAT_TEMPLATE
    if enable_thinking is not None:
        if "enable_thinking" not in source:
            rule = f"its chat template does not use tokenize.enable_thinking={enable_thinking}"
            raise InputError(path, None, rule, "set it to null")
        tokens["enable_thinking"] = enable_thinking
    with understood(path, "a chat template"):
        return ChatTemplate(source, special, path, tokens)


def default_template(settings: Mapping[str, Any]) -> Any:
    """Return the chat template of tokenizer_config.json; "" if it has several, but none named default."""
    source = settings.get("chat_template")
    if isinstance(source, list):
        return {entry["name"]: entry["template"] for entry in source}.get("default", "")
    return source


def named_tokens(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return bos_token, eos_token, pad_token and unk_token, which transformers passes to a template."""
    named = {key: settings.get(key) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    texts = {key: token.get("content") if isinstance(token, dict) else token for key, token in named.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Return JSON; unlike Jinja's filter, without HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> None:
    raise TemplateError(message)
