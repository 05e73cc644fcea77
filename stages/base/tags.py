"""Tags such as <think> around parts of a completion, as reward functions read them."""

import re
from collections.abc import Iterable

TAG = re.compile(r"</?([A-Za-z][\w-]*)>")
FRAMES = ("s",)
"""Names of pairs that frame a text and are no tags in it: <s> and </s>."""
OPENED = re.compile(r"<(think|thinking|thought|reasoning|answer)>\s*\Z")
"""A tag that the end of a prompt opens, as the chat templates of models that always think do."""


def tags_of(tokens: Iterable[str]) -> set[str]:
    """Return the tokens <NAME> and </NAME> of which both exist."""
    listed = set(tokens)
    names = {match[1] for token in listed if (match := TAG.fullmatch(token)) and match[1] not in FRAMES}
    pairs = [{f"<{name}>", f"</{name}>"} for name in names]
    return {token for pair in pairs if pair <= listed for token in pair}


def opened(prompt: str) -> str:
    """Return the tag that a prompt opens at its end, with the space after it; empty if there is none."""
    match = OPENED.search(prompt)
    return match[0] if match else ""


def continued(prompt: str, completion: str) -> str:
    """Return a completion as rewards read it: with the tag that its prompt has opened.

    A model that repeats the tag has opened it once, too.
    """
    opening = opened(prompt)
    return completion if completion.lstrip().startswith(opening.rstrip() or "\0") else opening + completion
