"""What the points of a sweep have in common is made once."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Kept:
    """Results for objects that nobody changes, as long as this is kept itself."""

    def __init__(self) -> None:
        self.sections: dict[tuple[str, str], Any] = {}
        """Typed sections, for `stages.base.reader.read`."""
        self._results: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def of(self, function: Callable[..., T], *subjects: Any) -> T:
        """`function(*subjects)`, called once for the very same objects.

        By identity, because sections cannot be hashed, and 1, 1.0 and true are equal but differ in JSON.
        """
        key = (function, *map(id, subjects))
        if key not in self._results:
            self._results[key] = function(*subjects), subjects  # kept, or others would get their ids
        result: T = self._results[key][0]
        return result
