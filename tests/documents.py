"""The pages of the documents in two languages, and the commands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
PROMPT = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A line that begins with $, including its continuation lines."""

    page: str
    text: str
    mark: str
    """The comment above its block; empty: a test runs the command."""


def pages() -> dict[str, Path]:
    """Return every English page by name; a page that includes a file of the root is replaced by that file."""
    docs = ROOT / "docs"
    result = {str(file.relative_to(docs)): file for file in sorted(docs.rglob("*.md"))}
    result = {name: file for name, file in result.items() if not name.startswith("zh/")}
    return result | {"contributing.md": ROOT / "CONTRIBUTING.md", "security.md": ROOT / "SECURITY.md"}


def pairs() -> dict[str, tuple[Path, Path]]:
    """Return every page in English and Chinese, README first."""
    result = {name: (file, ROOT / "docs/zh" / name) for name, file in pages().items()}
    return {"README.md": (ROOT / "README.md", ROOT / "README_CN.md"), **result}


def commands(page: str, text: str) -> list[Command]:
    """Return the commands of a page, without comments."""
    result = []
    for block in FENCE.finditer(text):
        for match in PROMPT.findall(block["body"]):
            text = re.sub(r"\s+", " ", match.replace("\\\n", " "))
            result.append(Command(page, re.sub(r" #.*$", "", text).strip(), block["mark"] or ""))
    return result


def all_commands() -> list[Command]:
    """Return the commands of all English pages and README."""
    files = {"README.md": ROOT / "README.md", **pages()}
    return [
        command
        for name, file in files.items()
        for command in commands(name, file.read_text(encoding="utf-8"))
    ]
