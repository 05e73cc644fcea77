"""Check links of built pages (`python docs/links.py DIR`): inner ones lead somewhere, outer ones are URLs."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the ids in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        told = dict(attrs)
        self.ids.add(told.get("id") or "")
        self.links += [told[name] or "" for name in ("href", "src") if name in told]


def broken(root: Path) -> list[str]:
    """Every link below `root` that leads nowhere, with its page."""
    pages = {file.resolve(): Page(file) for file in root.rglob("*.html")}
    found = []
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
            found += [] if good else [f"{file.relative_to(root.resolve())}: {link}"]
    return found


if __name__ == "__main__":
    lines = broken(Path(sys.argv[1]))
    print("\n".join(lines), file=sys.stderr)
    sys.exit(bool(lines))
