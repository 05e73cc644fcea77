"""Descriptions of the user's functions for a model, read from their source without importing it.

verl would make the same from the imported function (tools/function_tool.py, transformers' get_json_schema):
name, docstring, and the type and description of each parameter. Reading the source lets plan check and count
them, because a plan must not run code.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import Problem

SOURCE = "verl/tools/function_tool.py"
TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "List": "array",
    "dict": "object",
    "Dict": "object",
}
"""Name of a type hint -> type in a JSON schema; verl leaves out what a list or dict contains."""
KNOWN = "str, int, float, bool, list, dict, Literal[...], or one of them | None"
SECTION = re.compile(r"^[ \t]*(Args|Returns|Raises):", re.MULTILINE)
PARAMETER = re.compile(r"\s*(\w+)(?:\s*\([^)]*\))?:\s*(.*)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Tool:
    """A function that the model may call, as it is described to it."""

    schema: Mapping[str, Any] | None
    """Description in OpenAI's format; None if there is a problem."""
    problems: tuple[Problem, ...]


def read_tool(key: str, name: str, file: Path) -> Tool:
    """Return the description of a function.

    Args:
        key: key of the configuration that names the function, for messages.
        name: module:function.
        file: source file of the module.
    """
    function_name = name.partition(":")[2]
    try:
        body = ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError, OSError) as error:
        rule = f"{file} can't be read as Python: {error}"
        return Tool(None, (Problem(key, name, rule, "correct the file", SOURCE),))
    functions = [node for node in body if isinstance(node, Function) and node.name == function_name]
    if not functions:
        rule, remedy = f"{file} has no function {function_name} at its top level", "define it there"
        return Tool(None, (Problem(key, name, rule, remedy, SOURCE),))
    function = functions[-1]  # the last definition counts
    problems = tuple(Problem(key, name, rule, remedy, SOURCE) for rule, remedy in _faults(function))
    return Tool(None if problems else _schema(function), problems)


def _faults(function: Function) -> Iterator[tuple[str, str]]:
    """Yield rule and remedy of each reason why a function cannot be described."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        yield "must not have *args, **kwargs or positional-only parameters", "name each parameter"
    summary, described = _documented(function)
    if not summary:
        yield "needs a docstring, by which the model knows what it does", "add one"
    for parameter in _parameters(function):
        name, hint = parameter.arg, parameter.annotation
        if hint is None:
            yield f"parameter {name} has no type hint", f"use {KNOWN}"
        elif _type(hint) is None:
            yield f"parameter {name} has the type hint {ast.unparse(hint)}", f"use {KNOWN}"
        if summary and name not in described:
            example = f"add a line '{name}: ...' under 'Args:'"
            yield f"parameter {name} is not described in the docstring", example


def _schema(function: Function) -> dict[str, Any]:
    summary, described = _documented(function)
    properties = {}
    for parameter in _parameters(function):
        hint = _type(parameter.annotation) if parameter.annotation is not None else None
        assert hint is not None
        kind, choices = hint
        values: dict[str, Any] = {"type": kind, "description": described[parameter.arg]}
        properties[parameter.arg] = values if choices is None else {**values, "enum": choices}
    arguments = function.args
    optional = {each.arg for each in arguments.args[len(arguments.args) - len(arguments.defaults) :]}
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    optional |= {each.arg for each, default in pairs if default is not None}
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [name for name in properties if name not in optional]:
        parameters["required"] = required
    described_function = {"name": function.name, "description": summary, "parameters": parameters}
    return {"type": "function", "function": described_function}


def _parameters(function: Function) -> list[ast.arg]:
    return [*function.args.args, *function.args.kwonlyargs]


def _documented(function: Function) -> tuple[str, dict[str, str]]:
    """Return the docstring up to its first section, and the descriptions below `Args:`."""
    text = inspect.cleandoc(ast.get_docstring(function, clean=False) or "")
    first, *rest = SECTION.split(text)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    known, described, name = {each.arg for each in _parameters(function)}, dict[str, str](), ""
    for line in filter(str.strip, sections.get("Args", "").split("\n")):
        if (match := PARAMETER.fullmatch(line)) and match[1] in known:
            name, described[match[1]] = match[1], match[2].strip()
        elif name:
            described[name] = f"{described[name]} {line.strip()}".strip()
    return first.strip(), described


def _type(hint: ast.expr) -> tuple[str, list[Any] | None] | None:
    """Return a hint's JSON type and the values of a Literal; None if it has no such type."""
    match hint:
        case ast.Constant(value=str(text)):  # a hint in quotes
            try:
                return _type(ast.parse(text, mode="eval").body)
            except SyntaxError:
                return None
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _optional([left, right])
        case ast.Subscript(value=value, slice=inner):
            name = _name(value)
            if name == "Optional":
                return _type(inner)
            if name == "Union" and isinstance(inner, ast.Tuple):
                return _optional(inner.elts)
            if name == "Literal":
                return _literal(inner.elts if isinstance(inner, ast.Tuple) else [inner])
            return (TYPES[name], None) if TYPES.get(name) in ("array", "object") else None
        case ast.Name() | ast.Attribute():
            name = _name(hint)
            return (TYPES[name], None) if name in TYPES else None
    return None


def _optional(parts: list[ast.expr]) -> tuple[str, list[Any] | None] | None:
    """Return the type of `X | None`."""
    others = [part for part in parts if not (isinstance(part, ast.Constant) and part.value is None)]
    return _type(others[0]) if len(others) == 1 else None


def _literal(parts: list[ast.expr]) -> tuple[str, list[Any] | None] | None:
    values = [part.value for part in parts if isinstance(part, ast.Constant)]
    kinds = {TYPES.get(type(value).__name__) for value in values}
    kind = kinds.pop() if len(kinds) == 1 and len(values) == len(parts) else None
    return None if kind is None else (kind, values)


def _name(node: ast.expr) -> str:
    """Return the last part of a name such as typing.Literal."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
