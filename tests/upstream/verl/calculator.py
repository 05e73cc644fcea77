"""Functions of a user, for rollout.tools."""

import asyncio
from typing import Literal


def add(a: int, b: int) -> str:
    """Add two whole numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return str(a + b)


async def repeat(text: str, times: int = 2, joined: Literal["a", "b"] = "a", more: dict | None = None) -> str:
    """Repeat a text.

    This takes
    two lines.

    Args:
        text: What is repeated, in
            two lines.
        times: How often.
        joined: How: it is not used.
        more: Not used either.

    Returns:
        The repeated text.
    """
    await asyncio.sleep(0)
    return text * times


def numbers(values: list[float], exact: bool) -> dict:
    """Return facts about numbers.

    Args:
        values: The numbers.
        exact: Whether they are exact.
    """
    return {"count": len(values), "exact": exact}
