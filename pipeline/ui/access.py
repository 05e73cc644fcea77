"""Access control of `grpoflow ui`: a secret token, local host names and no foreign origins.

The printed URL contains the token. A browser exchanges it for a cookie; programs send it as
`Authorization: Bearer`. Other users of this machine can connect, but every response without the token is 403.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from email.message import Message
from urllib.parse import urlsplit

HOST_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""Accepted names in the Host header; any port, because `ssh -L` may forward from another one."""


@dataclass(frozen=True)
class Access:
    """The token of one server process."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """Name of the cookie; it differs per token because browsers share cookies between ports of a host."""
        return f"grpoflow-{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"

    def refusal(self, headers: Message, query_token: str | None) -> str | None:
        """Return why a request is refused, or None; `query_token` is the token in its URL, if any."""
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if not _is_local(host):  # prevents DNS rebinding
            return f"served only under the names {', '.join(sorted(HOST_NAMES))}"
        if origin is not None and origin.partition("://")[2] != host:
            return "pages of other origins are refused"
        if query_token is not None:  # a link on any page may contain the token
            matches = _equal(query_token, self.token)
            return None if matches else "the token in this URL is not the one of this grpoflow ui"
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "pages of other origins are refused"
        kind, _, bearer = headers.get("Authorization", "").partition(" ")
        pairs = (part.strip().partition("=") for part in headers.get("Cookie", "").split(";"))
        tokens = [value for name, _, value in pairs if name == self.cookie]
        tokens += [bearer.strip()] if kind.lower() == "bearer" else []
        if any(_equal(token, self.token) for token in tokens):
            return None
        return "open the URL that grpoflow ui printed, including its token"


def _is_local(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in HOST_NAMES
    except ValueError:
        return False


def _equal(value: str, token: str) -> bool:
    return hmac.compare_digest(value.encode("utf-8", "replace"), token.encode())
