"""Keep secrets out of what is told: messages of HTTP libraries quote addresses, queries and proxies."""

import os
import re
from urllib.parse import unquote, urlsplit

TOKEN_VARIABLE = "MODELSCOPE_API_TOKEN"  # noqa: S105 - the variable's name
ADDRESS_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "MODELSCOPE_ENDPOINT")
HIDDEN = "***"
USERINFO = re.compile(r"(?<=://)[^/?#@\s'\"]*@")
QUERY = re.compile(r"\?[^\s'\"<>)\]]*")


def redact(text: str) -> str:
    """`text` without user names and passwords of addresses, queries (signatures), and the hub's token."""
    text = QUERY.sub("?…", USERINFO.sub(f"{HIDDEN}@", text))
    for secret in sorted(_secrets(), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _secrets() -> set[str]:
    found = {os.environ.get(TOKEN_VARIABLE, "")}
    for name in ADDRESS_VARIABLES:
        for variable in (name, name.lower()):
            password = urlsplit(os.environ.get(variable, "")).password or ""
            found |= {password, unquote(password)}
    return {secret for secret in found if secret}
