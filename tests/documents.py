"""The documents as tests see them: pages in two languages, and the commands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENGLISH_ONLY = {"engines/verl.md"}
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
PROMPT = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """One line that begins with $, with the lines that go on with it."""

    page: str
    text: str
    mark: str
    """What the comment above its block says; empty: it is run."""


def pages() -> dict[str, Path]:
    """Every English page by its name; a file of the root that a page includes stands for that page."""
    docs = ROOT / "docs"
    found = {str(file.relative_to(docs)): file for file in sorted(docs.rglob("*.md"))}
    found = {name: file for name, file in found.items() if not name.startswith("zh/")}
    return found | {"contributing.md": ROOT / "CONTRIBUTING.md", "security.md": ROOT / "SECURITY.md"}


def pairs() -> dict[str, tuple[Path, Path]]:
    """Every page in English and in Chinese, README first."""
    found = {
        name: (file, ROOT / "docs/zh" / name) for name, file in pages().items() if name not in ENGLISH_ONLY
    }
    return {"README.md": (ROOT / "README.md", ROOT / "README_CN.md"), **found}


def commands(page: str, text: str) -> list[Command]:
    """The commands of a page, without comments."""
    found = []
    for block in FENCE.finditer(text):
        for typed in PROMPT.findall(block["body"]):
            text = re.sub(r"\s+", " ", typed.replace("\\\n", " "))
            found.append(Command(page, re.sub(r" #.*$", "", text).strip(), block["mark"] or ""))
    return found


def all_commands() -> list[Command]:
    """Those of all English pages and README."""
    files = {"README.md": ROOT / "README.md", **pages()}
    return [one for name, file in files.items() for one in commands(name, file.read_text(encoding="utf-8"))]
