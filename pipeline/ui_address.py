"""Where the living `grpoflow ui` of a store is: a file of the store, light to read."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.errors import ConfigError, Problem

ADDRESS = Path(".ui") / "address.json"


def address(root: Path, cards: int) -> str:
    """Address of the living ui of a store.

    Args:
        root: the store.
        cards: what the run needs; a scheduler with fewer would let it wait for ever.

    Raises:
        ConfigError: there is none, it does not answer, or it has too few cards.
    """
    try:
        told = json.loads((root / ADDRESS).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        rule = f"no grpoflow ui serves {root}"
        raise ConfigError([Problem("--ui", None, rule, f"start one: grpoflow ui store={root}")]) from None
    if cards > told["cards"]:
        rule = f"more than the {told['cards']} cards of grpoflow ui at {told['url']}"
        raise ConfigError([Problem("cards", cards, rule, f"start it with --cards {cards}")])
    try:
        place = urlsplit(told["url"])
        socket.create_connection((place.hostname, place.port), timeout=5).close()
    except OSError as error:  # killed: Luigi would go on asking it for minutes
        rule, remedy = f"does not answer at {told['url']}", f"start it again: grpoflow ui store={root}"
        raise ConfigError([Problem("--ui", None, rule, remedy)]) from error
    return str(told["url"])


def tracking_url(root: Path, run: str) -> str | None:
    """Address of a run's live report, where a ui serves the store."""
    try:
        return f"{json.loads((root / ADDRESS).read_text(encoding='utf-8'))['url']}/run/{run}"
    except (OSError, ValueError):
        return None
