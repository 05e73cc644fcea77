"""The tokenizer's own chat template: messages to text, and the text to pieces that can be encoded.

A template marks turns with special tokens. The same characters inside a message are only text: they
are guarded while the template runs, so that no message can end its own turn or begin another.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from stages.base.errors import InputError
from stages.base.files import read_text, understood
from stages.fetch.config import BASE_TEMPLATE, TEMPLATE
from stages.fetch.tokenizer_files import CHAT_TEMPLATE
from stages.tokenize.sandbox import Sandbox
from stages.tokenize.text import Turn
from stages.tokenize.tokenizer import read_json

GUARD = "\ufdd0"  # a code point that no text means anything by
QUESTION = "How many are 12 + 30 apples?"
"""Question that every template must render."""
GUARDED = re.compile(f"{GUARD}({GUARD}?)")


@dataclass(frozen=True)
class Piece:
    """Part of a rendered conversation."""

    text: str
    """Still guarded."""
    learnt: bool
    """True for the assistant's words and the token that ends its turn."""


class TemplateRefusalError(ValueError):
    """The template can't render these messages (for example, two turns of one role in a row)."""


class ChatTemplate:
    """Renders conversations as transformers' apply_chat_template does.

    Source: huggingface/transformers v5.12.1, utils/chat_template_utils.py (sandbox, whitespace rules,
    tojson and raise_exception). There is no strftime_now: a template that asks for today's date, as
    Llama 3.2's does, takes the date that it has for such a case, and ids are the same tomorrow.
    """

    def __init__(
        self, source: str, special: Mapping[str, int], path: Path, told: Mapping[str, Any] | None = None
    ) -> None:
        """Compile a template.

        Raises:
            InputError: the template is malformed.
        """
        self.source, self.path = source, path
        self._special, self._told = dict(special), dict(told or {})
        tokens = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
        self._tokens = re.compile(f"({tokens})" if tokens else r"(?!)")
        environment = Sandbox()
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.compile_limited(source)
        except (TemplateError, ArithmeticError, RecursionError, ValueError) as error:
            raise InputError(path, None, f"its chat template is malformed: {error}") from error

    def render(self, turns: Sequence[Turn], generation: bool = False) -> str:
        """Return the guarded text of a conversation.

        Raises:
            TemplateRefusalError: the template fails, or takes too many steps.
        """
        messages = [{"role": turn.role, "content": self._guard(turn.content)} for turn in turns]
        try:
            return self._template.render(messages=messages, add_generation_prompt=generation, **self._told)
        except Exception as error:  # a template's expressions may raise anything
            reason = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
            raise TemplateRefusalError(f"the chat template refuses it: {reason}") from error

    def check(self, before: Sequence[Turn] = ()) -> None:
        """Refuse a template that fails for a plain question, or leaves it out.

        Args:
            before: turns that precede every question.

        Raises:
            InputError: naming the template's file.
        """
        remedy = "correct it, change tokenize.system_prompt, or set tokenize.chat_template=false"
        try:
            text = self.render([*before, Turn("user", QUESTION)], generation=True)
        except TemplateRefusalError as error:
            raise InputError(self.path, None, str(error), remedy) from error
        if QUESTION not in text:
            raise InputError(self.path, None, "its chat template leaves out the user's question", remedy)

    def pieces(self, turns: Sequence[Turn]) -> list[Piece]:
        """Split a conversation at the assistant's turns.

        Each cut lies where the prompt of that turn ends, so that a piece's ids are those of training's
        rollouts. The line break that Qwen2's template puts behind a turn's end is not learnt: nothing
        is generated after the end token.

        Raises:
            TemplateRefusalError: the template refuses, or renders earlier turns differently later on.
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
        """Guarded text as plain text (str, not empty) and special tokens (int) in turn."""
        parts = self._tokens.split(text)
        plain = (GUARDED.sub(r"\1", part) for part in parts[::2])
        ids = [self._special[part] for part in parts[1::2]]
        result: list[str | int] = []
        for words, token in zip(plain, [*ids, None], strict=True):
            result += [words] if words else []
            result += [] if token is None else [token]
        return result

    def _guard(self, content: str) -> str:
        content = content.replace(GUARD, GUARD * 2)
        return self._tokens.sub(lambda match: match[0][0] + GUARD + match[0][1:], content)


def load_template(
    directory: Path, special: Mapping[str, int], enable_thinking: bool | None = None
) -> ChatTemplate:
    """Load a tokenizer's chat template from its file, else from tokenizer_config.json, else plain ChatML.

    Of an exported model its base's counts: its own wraps that in what tokenize says, which is said anew.

    Raises:
        InputError: it is malformed, or knows nothing of the thinking that it is told of.
    """
    path = directory / "tokenizer_config.json"
    with understood(path, "a chat template"):
        settings = read_json(path) if path.is_file() else {}
        source, tokens = settings.get("chat_template"), named_tokens(settings)
        if isinstance(source, list):  # several, each with a name
            source = {entry["name"]: entry["template"] for entry in source}.get("default")
    files = [file for name in (BASE_TEMPLATE, TEMPLATE) if (file := directory / name).is_file()]
    if files:
        path = files[0]
        with understood(path, "a chat template"):
            source = read_text(path)
    source = source or CHAT_TEMPLATE
    if enable_thinking is not None:
        if "enable_thinking" not in source:
            rule = f"knows no enable_thinking, which tokenize.enable_thinking={enable_thinking} would tell it"
            raise InputError(path, None, f"its chat template {rule}", "set it to null")
        tokens["enable_thinking"] = enable_thinking
    with understood(path, "a chat template"):
        return ChatTemplate(source, special, path, tokens)


def named_tokens(settings: Mapping[str, Any]) -> dict[str, Any]:
    """bos_token and its kin, as transformers tells a template of them."""
    named = {key: settings.get(key) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    texts = {key: token.get("content") if isinstance(token, dict) else token for key, token in named.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _tojson(value: Any, indent: int | None = None) -> str:
    """Jinja's own escapes HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)
