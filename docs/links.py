"""Check the links of built pages (`python docs/links.py DIR`)."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The link targets and ids of an HTML page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the id and the links of a tag."""
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        self.links += [values[name] or "" for name in ("href", "src") if name in values]


def broken(root: Path) -> list[str]:
    """Return every broken link of the pages below `root`, with its page."""
    pages = {file.resolve(): Page(file) for file in root.rglob("*.html")}
    problems = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if parts.scheme or parts.netloc:
                good = parts.scheme in ("https", "mailto", "data") and bool(parts.netloc or parts.path)
            elif target in pages:
                good = unquote(parts.fragment) in pages[target].ids
            else:
                good = target.is_file()
            problems += [] if good else [f"{file.relative_to(root.resolve())}: {link}"]
    return problems


if __name__ == "__main__":
    lines = broken(Path(sys.argv[1]))
    print("\n".join(lines), file=sys.stderr)
    sys.exit(bool(lines))
