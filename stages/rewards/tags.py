"""Tags such as <think> that the end of a prompt opens for its completion."""

import re

OPENED = re.compile(r"<(think|thinking|thought|reasoning|answer)>\s*\Z")
"""A tag that the end of a prompt opens, as the chat templates of models that always think do."""


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
