"""Removal of secrets from text that is stored or shown: records, pages, logs and messages."""

import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN_VARIABLE = "MODELSCOPE_API_TOKEN"  # noqa: S105 - the variable's name
SECRET_VARIABLES = (TOKEN_VARIABLE, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
ADDRESS_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "MODELSCOPE_ENDPOINT")
HIDDEN = "***"
SHORTEST = 8
"""Characters of a secret of the environment that no other text holds by chance."""
SCHEMES = r"(?:https?|ftps?|sftp|ssh|git|svn|s3|oss|obs|gs|az|abfss?|hdfs|webdavs?|hf)"
"""Schemes of addresses in which a path library has replaced // by /."""
LOGIN = re.compile(r"(?:sftp|ssh)://?(?=[^/:?#@\s'\"]+@)", re.IGNORECASE)
"""The start of an SFTP URL with a user name only, which is no secret."""
USERINFO = re.compile(
    rf"(?:(?<=://)|(?<![A-Za-z0-9.])(?P<collapsed>(?:[a-z]+\+)?{SCHEMES}:/)(?!/))(?:"
    r"[^/?#\s'\"]*@"  # user:password@host
    r"|[^/?#@\s'\":]*:(?!\d{1,5}(?:/|\?|#))[^\s'\"]*@"  # a password with a slash, as AWS makes them; no port
    r")",
    re.IGNORECASE,
)
TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|ms-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # ModelScope
    r"|gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}"  # AWS
    r"|AIza[\w-]{30,}"  # Google
    r"|sk-(?:[A-Za-z0-9]+-){0,3}\w{16,}[\w-]*"  # OpenAI, Anthropic and many others
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|(?:npm_|pypi-|nvapi-|dckr_pat_)[\w-]{24,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]*"  # JSON Web Token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r")"
)
"""Access tokens and keys that are recognised by their form."""
QUERY = re.compile(r"(?P<url>://[^\s'\"<>?#]*)?(?<=[^\s?])(?P<sign>[?#])(?P<query>[^\s'\"<>)\]]+)")
SECRET_KEYS = re.compile(
    r"token|secret|signature|passw|credential|jwt|(access|api).?key|(^|[-_])(auth|key|sig)$", re.IGNORECASE
)


def redact(text: str, all_queries: bool = True) -> str:
    """Return `text` without users and passwords of URLs, queries, tokens and the environment's secrets.

    Without `all_queries` only queries with a secret are hidden, so that an override can be repeated. The user
    name of an SFTP URL without a password stays.
    """
    hide = _hide_query if all_queries else _hide_secret_query
    text = TOKENS.sub(HIDDEN, QUERY.sub(hide, _hide_users(text)))
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


def secret_in(text: str) -> str | None:
    """Return what a text holds that must not be recorded, for a message; None if there is nothing."""
    if _hide_users(text) != text:
        return "the user or password of a URL"
    for match in QUERY.finditer(text):
        if match["url"] and (keys := _secret_keys(match["query"])):
            return f"a secret, {keys[0]}"
    if TOKENS.search(text):
        return "an access token or key"
    known = any(len(secret) >= SHORTEST and secret in text for secret in _secrets())
    return "a secret of the environment" if known else None


def _hide_users(text: str) -> str:
    """Replace users and passwords; a URL ends where the next one begins."""
    parts = re.split(rf"(?=\b[a-zA-Z][a-zA-Z0-9+.-]*://|\b(?i:{SCHEMES}):/[^/])", text)
    return "".join(
        part if LOGIN.match(part) else USERINFO.sub(rf"\g<collapsed>{HIDDEN}@", part) for part in parts
    )


def _hide_query(match: re.Match[str]) -> str:
    """Replace the query of a URL, or one with keys."""
    is_query = "=" in match["query"] or (match["url"] and match["sign"] == "?")
    return f"{match['url'] or ''}{match['sign']}…" if is_query else match[0]


def _hide_secret_query(match: re.Match[str]) -> str:
    """Replace a query that holds a secret: by its keys, or a URL's query without keys."""
    is_secret = "=" not in match["query"] or _secret_keys(match["query"])
    return _hide_query(match) if is_secret else match[0]


def _secret_keys(query: str) -> list[str]:
    """Return the keys of a query whose names say that their values are secret."""
    pairs = [parameter.partition("=") for parameter in re.split("[&;?#]", query)]
    return [name for key, sign, _ in pairs if sign and SECRET_KEYS.search(name := unquote(key))]


def _secrets() -> set[str]:
    """Return the environment's secrets that are in use."""
    secrets = {os.environ.get(name, "") for name in SECRET_VARIABLES}
    for name in ADDRESS_VARIABLES:
        for variable in (name, name.lower()):
            password = urlsplit(os.environ.get(variable, "")).password or ""
            secrets |= {password, unquote(password)}
    return {secret for secret in secrets if secret}
