"""Where the living `grpoflow ui` of a store is, and how runs ask it: a file that only its user can read."""

import contextlib
import http.client
import json
import os
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from pipeline.errors import ConfigError, Problem

ADDRESS = Path(".ui") / "address.json"
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Place:
    """A living ui."""

    url: str
    """Its pages; for a socket, where they are once it is forwarded."""
    token: str = field(repr=False)
    """For reading, as in the address that it prints."""
    key: str = field(repr=False)
    """For what runs do."""
    cards: int
    """How many it hands out."""
    socket: str | None = None
    """Its Unix socket; None: it listens at `url`."""

    def __str__(self) -> str:
        return self.url if self.socket is None else self.socket

    def connect(self, timeout_s: float = TIMEOUT_S) -> http.client.HTTPConnection:
        """A connection to it, not opened yet."""
        if self.socket is not None:
            return _UnixConnection(self.socket, timeout_s)
        place = urlsplit(self.url)
        return http.client.HTTPConnection(str(place.hostname), place.port, timeout=timeout_s)

    def post(self, path: str, body: str, timeout_s: float = TIMEOUT_S) -> str:
        """The answer to a call of Luigi's, as a run.

        Raises:
            OSError: it does not answer.
            HTTPException: it answers something else.
        """
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/x-www-form-urlencoded"}
        with contextlib.closing(self.connect(timeout_s)) as connection:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8")
        if answer.status != http.client.OK:
            raise http.client.HTTPException(f"{answer.status} {answer.reason}")
        return text

    def ask(self, method: str, **values: Any) -> Any:
        """The response of one of Luigi's methods.

        Raises:
            OSError: it does not answer.
            HTTPException: it answers something else.
            ValueError: so it does, in another way.
        """
        answer = json.loads(self.post(f"/api/{method}", urlencode({"data": json.dumps(values)})))
        return answer["response"] if isinstance(answer, dict) and "response" in answer else None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Fetcher:
    """How Luigi's RemoteScheduler asks (luigi.rpc): the key is in no address, so that no log can hold it."""

    raises = (OSError, http.client.HTTPException)

    def __init__(self, place: Place) -> None:
        self._place = place

    def fetch(self, full_url: str, body: dict[str, str], timeout: float) -> str:
        """The answer to one call."""
        return self._place.post(urlsplit(full_url).path, urlencode(body), timeout)

    def close(self) -> None:
        """Nothing is kept open."""


def write(root: Path, place: Place) -> None:
    """Tell this user's runs; the file is nobody else's to read.

    Raises:
        OSError: it cannot be written.
    """
    file = root / ADDRESS
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(asdict(place), stream)
    temporary.replace(file)


def read(root: Path) -> Place | None:
    """What `write` wrote; None where it is missing, somebody else's, or something else."""
    try:
        with (root / ADDRESS).open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None  # in a store of several people, theirs is not asked: it would hear of our runs
            place = Place(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    texts = (place.url, place.token, place.key)
    sound = all(isinstance(text, str) for text in texts) and isinstance(place.cards, int)
    return place if sound and isinstance(place.socket, str | None) else None


def address(root: Path, cards: int) -> Place:
    """The living ui of a store.

    Args:
        root: the store.
        cards: what the run needs; a scheduler with fewer would let it wait for ever.

    Raises:
        ConfigError: there is none of this user's, it does not answer, or it has too few cards.
    """
    place = read(root)
    if place is None:
        rule = f"no grpoflow ui of yours serves {root}"
        raise ConfigError([Problem("--ui", None, rule, f"start one: grpoflow ui store={root}")])
    if cards > place.cards:
        rule = f"more than the {place.cards} cards of grpoflow ui at {place}"
        raise ConfigError([Problem("cards", cards, rule, f"start it with --cards {cards}")])
    try:
        place.ask("resource_list")
    except (OSError, ValueError, http.client.HTTPException) as error:  # Luigi would go on asking for minutes
        rule, remedy = f"does not answer at {place}", f"start it again: grpoflow ui store={root}"
        raise ConfigError([Problem("--ui", None, rule, remedy)]) from error
    return place


def obstacle(place: Place, needed: int) -> str:
    """Why the scheduler gave a run nothing to do, as far as it tells."""
    try:
        resources = {row["name"]: row["num_total"] for row in place.ask("resource_list")}
        paused = place.ask("is_paused")
    except (OSError, ValueError, TypeError, KeyError, http.client.HTTPException) as error:
        return f"the scheduler of grpoflow ui at {place} does not answer any more ({type(error).__name__})"
    cards = resources.get("cards", 0)
    if cards < needed:
        return f"grpoflow ui at {place} hands out {cards} cards, and {needed} are needed; start it again"
    state = (
        "is paused" if isinstance(paused, dict) and paused.get("paused") else "gave this run nothing to do"
    )
    return f"the scheduler of grpoflow ui at {place} {state}; its pages show who holds which task"


def tracking_url(root: Path) -> str | None:
    """What stands before a run's id in the address of its report, relative to a ui's pages; None: no ui."""
    return "/run/" if read(root) is not None else None
