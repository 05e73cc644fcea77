"""Reference pages generated from the product's fields, parsers and table of failures.

A comment such as `<!-- generated: commands -->` in a page is replaced when Sphinx reads the page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from launch.diagnose.failures import GRPOFLOW_ERROR, failures
from pipeline.cli import COMMANDS, make_parsers
from pipeline.cli.command import OVERRIDES
from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.plan.graph import stages
from pipeline.plan.keys import KeyDescription, explain
from stages import engines
from stages.base.errors import as_override
from stages.base.identity import field_types
from stages.engines import NAMES, SUPERVISED
from stages.report.graph import HEIGHT, WIDTH
from stages.report.graph import graph as picture

ENGINES = {
    **dict.fromkeys(NAMES, ("model=qwen2_5_7b",)),
    "local": (),
    "mindrlhf_one_stage": ("model=qwen2_5_7b", "layout=dp1_mp4_pp2", "train.prompts_per_step=2"),
}
"""Overrides that make each engine's defaults a valid run."""
PROGRAMS = {
    "mindrlhf": ("mindrlhf", "mindrlhf"),
    "verl": ("verl", "verl"),
    "mindspeed_rl": ("MindSpeed-RL", "MindSpeed-RL"),
    "mindspore": ("MindSpore, CANN and mindformers", "MindSpore、CANN 和 mindformers"),
    "": ("Any program", "所有程序"),
}
"""Program of a failure -> title of its section in English and Chinese, in the order of the page."""
SPECIAL = re.compile(r"([\\*_<>\[\]|#~])")
CODE = re.compile(r"(`[^`]+`)")


def configuration(language: str) -> str:
    """Return the reference of all keys: meaning, type, unit, bounds, default, rules, rebuilt stages."""
    runs = {name: load([f"engine={name}", "store=./store", *more]) for name, more in ENGINES.items()}
    local = runs["local"]
    names = [*field_types(Config)]
    top_level = [name for name in names if not explain(name, local).fields]
    lines = ["## Top-level keys", "", *_keys(local, top_level)]
    for name in names:
        if name in top_level:
            continue
        for engine, run in runs.items() if name == "engine" else [("", local)]:
            section = explain(name, run)
            lines += [f"## {name}={engine}" if engine else f"## {name}", "", _text(section.meaning), ""]
            lines += _keys(run, [f"{name}.{key}" for key in section.fields], engine)
    return "\n".join(lines)


def commands(language: str) -> str:
    """Return the reference of all commands: description, arguments and examples."""
    lines = []
    order = [*COMMANDS]
    parsers = make_parsers()[1].items()
    for name, parser in sorted(parsers, key=lambda item: order.index(item[0].split()[0])):
        lines += [f"## grpoflow {name}", "", _text(parser.description or ""), ""]
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction) and action.dest not in (
                "overrides",
                "config_dir",
            ):
                lines += [_typed(action), f": {_text(_help(action))}", ""]
        lines += ["```text", *examples(parser), "```", ""]
    return "\n".join(lines)


def overrides(language: str) -> str:
    """Return the help text about overrides that all commands share."""
    return f"```text\n{OVERRIDES}\n```"


def troubles(language: str) -> str:
    """Return diagnose's table by program: log message, cause, remedy."""
    chinese = language == "zh_CN"
    translated = (
        yaml.safe_load((Path(__file__).parent / "zh" / "failures.yaml").read_text("utf-8")) if chinese else {}
    )
    lines = []
    for program, titles in PROGRAMS.items():
        lines += [f"### {titles[chinese]}", ""]
        for failure in failures():
            if failure is GRPOFLOW_ERROR or failure.program != program:
                continue
            texts = translated.get(failure.name, {"cause": failure.cause, "remedy": failure.remedy})
            cause, remedy = (_text(_named(texts[part])) for part in ("cause", "remedy"))
            lines += [f"`{failure.sign}`", f": {cause}", f": → {remedy}", ""]
    return "\n".join(lines)


def upstream(language: str) -> str:
    """Return how many keys of each program grpoflow renders; engine.upstream sets all others."""
    chinese = language == "zh_CN"
    head = ("程序", "由 grpoflow 的键设置", "由 grpoflow 自己设置")
    names = ("program", "from grpoflow's keys", "by grpoflow itself")
    lines = [_row(head if chinese else names), _row(["---"] * 3)]
    for program in sorted((*NAMES, SUPERVISED)):
        if reasons := engines.get(program).rendered.values():
            fixed = sum(reason.startswith("=") for reason in reasons)
            lines.append(_row([program, str(len(reasons) - fixed), str(fixed)]))
    return "\n".join(lines)


def graph(language: str) -> str:
    """Return the picture of the graph of engine=local with supervised training."""
    reads = {
        stage.name: list(dict.fromkeys(stage.inputs.values()))
        for stage in stages(load(["engine=local", "sft.enabled=true"]))
        if stage.skipped is None
    }
    drawn = picture(reads, {})
    lines = [
        f'<svg class="stages" viewBox="0 0 {drawn.width} {drawn.height}" role="img"',
        f'aria-label="{drawn.alt}">',
        *(f'<path d="{path}"/>' for path in drawn.edges),
    ]
    for node in drawn.nodes:
        x, y = node.x + WIDTH // 2, node.y + HEIGHT // 2
        lines += [
            f'<rect x="{node.x}" y="{node.y}" width="{WIDTH}" height="{HEIGHT}" rx="9"/>',
            f'<text x="{x}" y="{y}" text-anchor="middle" dominant-baseline="central">{node.stage}</text>',
        ]
    return "\n".join(["```{raw} html", '<div class="scrolled">', *lines, "</svg>", "</div>", "```"])


PAGES = {make.__name__: make for make in (configuration, commands, graph, overrides, troubles, upstream)}


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """Return the lines of a command's examples."""
    return re.findall(
        r"^  (.+)$", (parser.epilog or "").partition("examples:\n")[2].partition("\n\n")[0], re.M
    )


def _typed(action: argparse.Action) -> str:
    words = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    if action.choices is not None and action.metavar is None:
        words = f" {{{','.join(map(str, action.choices))}}}"
    return f"`{', '.join(action.option_strings)}{words}`".replace("` ", "`")


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": "grpoflow"}


def _keys(run: Config, paths: list[str], engine: str = "") -> Iterator[str]:
    """Return the entries of keys; of several equal sections only the first is listed."""
    opened: dict[str, str] = {}
    for path in paths:
        key = explain(path, run)
        if not key.meaning:
            raise ValueError(f"{path} has no docstring")
        if key.fields and (first := opened.setdefault(str(key.fields), path)) != path:
            yield from (f"`{path}.…`", f": {_text(key.meaning)} Its keys are those of `{first}`.", "")
        elif key.fields:
            yield from _keys(run, [f"{path}.{inner}" for inner in key.fields], engine)
        else:
            anchor = f"{engine}.{path}".strip(".").replace(".", "-")
            yield from (
                f"[`{path}`]{{#{anchor}}}",
                f": {_text(key.meaning)}",
                f": [{_facts(key)}]{{.facts}}",
                "",
            )


def _facts(key: KeyDescription) -> str:
    unit = f", in {key.unit}" if key.unit else ""
    facts = [_text(key.type) + unit, f"default `{_shown(key.value)}`"]
    facts.append("rebuilds: " + ", ".join(key.reruns) if key.reruns else "not fingerprinted")
    if key.rules:
        facts.append("checked by: " + _text("; ".join(key.rules)))
    return " · ".join(facts)


def _shown(value: Any) -> str:
    return as_override(value).replace("`", "'") or "''"


def _text(text: str) -> str:
    """Escape plain text for Markdown and put it on one line; code in backticks stays."""
    parts = CODE.split(" ".join(text.split()))
    return "".join(part if CODE.fullmatch(part) else SPECIAL.sub(r"\\\1", part) for part in parts)


def _named(text: str) -> str:
    """Return a cause or remedy with its regex groups in capitals."""
    names = re.findall(r"(?<!\{)\{(\w+)\}", text)
    return text.format(**{name: name.upper() for name in names})


def _fill(app: Any, docname: str, source: list[str]) -> None:
    def generate(comment: re.Match[str]) -> str:
        return PAGES[comment[1]](app.config.language)

    source[0] = re.sub(r"^<!-- generated: (\w+) -->$", generate, source[0], flags=re.MULTILINE)


def setup(app: Any) -> dict[str, bool]:
    """Register the directives; called by Sphinx."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
