"""Jinja environment for chat templates: no access to Python, and limits on steps and text.

A template comes with a model and may be broken. Loop iterations and calls are counted, and texts that
operators build are measured; a template that exceeds a limit fails with TemplateRuntimeError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import Template, TemplateRuntimeError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

STEPS = 100_000
"""Loop iterations and calls of one rendering; the templates of common models take a few per message."""
CHARACTERS = 1 << 24
"""Characters of a rendered text, and of every text on the way."""
BITS = 1 << 16
"""Bits of a power."""
WIDE = re.compile(r"\d{4}|\*")
"""Widths in a format with % that could build a long text before it is measured."""
_ITERATE, _MEASURE = "grpoflow_iterate", "grpoflow_measure"


class LimitedTemplate(Template):
    """A template whose renderings count their steps."""

    environment: Sandbox

    def render(self, *args: Any, **variables: Any) -> str:
        """Return the rendered text. Raise TemplateRuntimeError if a limit is exceeded."""
        self.environment.steps = 0
        parts, characters = [], 0
        for part in self.root_render_func(self.new_context(dict(*args, **variables))):
            characters += len(part)
            _check_length(characters)
            parts.append(part)
        return "".join(parts)


class Generation(Extension):
    """The tag that marks the assistant's words for transformers; its body is rendered like any other text."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's interface)

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the body of the tag."""
        lineno = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=lineno)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of transformers' chat templates, with limits."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))
    template_class = LimitedTemplate

    def __init__(self) -> None:
        # not HTML: escaping would change the text
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
        self.steps = 0
        self.filters[_ITERATE] = self._iterate
        self.filters[_MEASURE] = _measure

    def compile_limited(self, source: str) -> Template:
        """Compile a template whose loops are counted and whose texts are measured."""
        return self.from_string(_Limits().visit(self.parse(source)))

    def call(self, context: Context, callee: Any, *args: Any, **keywords: Any) -> Any:
        """Call a function, method or macro of a template."""
        self._step()
        return _measure(super().call(context, callee, *args, **keywords))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute a sum, product, power or remainder after checking the size of its result."""
        if operator == "**":
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > BITS:
                raise TemplateRuntimeError(f"a power exceeds {BITS} bits")
        elif operator == "%":
            if isinstance(left, str) and WIDE.search(left):
                raise TemplateRuntimeError("a format with % may have no width above 999 and no *")
        elif isinstance(left, int) and hasattr(right, "__len__"):
            _check_length(left * len(right))
        elif isinstance(right, int) and hasattr(left, "__len__"):
            _check_length(len(left) * right)
        return _measure(super().call_binop(context, operator, left, right))

    def _iterate(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._step()
            yield value

    def _step(self) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise TemplateRuntimeError(f"more than {STEPS} loop iterations and calls")


class _Limits(NodeTransformer):
    """Additions to a template that count the iterations of loops and measure the results of `~`."""

    def generic_visit(self, node: nodes.Node, *args: Any, **keywords: Any) -> nodes.Node:
        node = super().generic_visit(node, *args, **keywords)
        if isinstance(node, nodes.For):
            node.iter = _filtered(node.iter, _ITERATE)
        return _filtered(node, _MEASURE) if isinstance(node, nodes.Concat) else node


def _filtered(value: nodes.Node, name: str) -> nodes.Filter:
    assert isinstance(value, nodes.Expr)
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


def _measure(value: Any) -> Any:
    """Return `value`; refuse a text that is too long."""
    if isinstance(value, str):
        _check_length(len(value))
    return value


def _check_length(characters: int) -> None:
    if characters > CHARACTERS:
        raise TemplateRuntimeError(f"a text of {characters} characters exceeds {CHARACTERS}")
