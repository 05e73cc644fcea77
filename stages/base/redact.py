"""Removal of secrets from text that is stored or shown: records, pages, logs and messages."""

import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN_VARIABLE = "MODELSCOPE_API_TOKEN"  # noqa: S105 - the variable's name
SECRET_VARIABLES = (TOKEN_VARIABLE, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
ADDRESS_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "MODELSCOPE_ENDPOINT")
HIDDEN = "***"
LOGIN = re.compile(r"(?:sftp|ssh)://(?=[^/:?#@\s'\"]+@)", re.IGNORECASE)
"""The start of an SFTP URL with a user name only, which is no secret."""
USERINFO = re.compile(
    r"(?<=://)(?:"
    r"[^/?#\s'\"]*@"  # user:password@host
    r"|[^/?#@\s'\":]*:(?!\d{1,5}(?:/|\?|#))[^\s'\"]*@"  # a password with a slash, as AWS makes them; no port
    r")"
)
QUERY = re.compile(r"(?P<url>://[^\s'\"<>?#]*)?(?<=[^\s?])(?P<sign>[?#])(?P<query>[^\s'\"<>)\]]+)")
SECRET_KEYS = re.compile(
    r"token|secret|signature|passw|credential|jwt|(access|api).?key|(^|[-_])(auth|key|sig)$", re.IGNORECASE
)


def redact(text: str, all_queries: bool = True) -> str:
    """Return `text` without passwords and users of URLs, queries, and the environment's secrets.

    Without `all_queries` only queries with a secret are hidden, so that an override can be repeated. The user
    name of an SFTP URL without a password stays.
    """
    hide = _hide_query if all_queries else _hide_secret_query
    text = QUERY.sub(hide, _hide_users(text))
    for secret in sorted(_secrets(), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def redacted(value: Any) -> Any:
    """Return a copy of plain data with all texts redacted; queries without a secret stay."""
    if isinstance(value, str):
        return redact(value, all_queries=False)
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    return value


def _hide_users(text: str) -> str:
    """Replace users and passwords; a URL ends where the next one begins."""
    parts = re.split(r"(?=\b[a-zA-Z][a-zA-Z0-9+.-]*://)", text)
    return "".join(part if LOGIN.match(part) else USERINFO.sub(f"{HIDDEN}@", part) for part in parts)


def _hide_query(match: re.Match[str]) -> str:
    """Replace the query of a URL, or one with keys."""
    is_query = "=" in match["query"] or (match["url"] and match["sign"] == "?")
    return f"{match['url'] or ''}{match['sign']}…" if is_query else match[0]


def _hide_secret_query(match: re.Match[str]) -> str:
    """Replace a query that holds a secret: by its keys, or a URL's query without keys."""
    pairs = [parameter.partition("=") for parameter in re.split("[&;?#]", match["query"])]
    is_secret = "=" not in match["query"] or any(sign and SECRET_KEYS.search(key) for key, sign, _ in pairs)
    return _hide_query(match) if is_secret else match[0]


def _secrets() -> set[str]:
    """Return the environment's secrets that are in use."""
    secrets = {os.environ.get(name, "") for name in SECRET_VARIABLES}
    for name in ADDRESS_VARIABLES:
        for variable in (name, name.lower()):
            password = urlsplit(os.environ.get(variable, "")).password or ""
            secrets |= {password, unquote(password)}
    return {secret for secret in secrets if secret}
