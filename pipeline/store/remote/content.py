"""The content of a copy as a stream: its parts are asked for ahead, and handed out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any

from pipeline.store.remote.copies import Copy, Span, part_name
from pipeline.store.remote.place import Place


class Content:
    """Spans of a copy as one stream: fetched several at a time, handed out in order."""

    def __init__(
        self,
        place: Place,
        copy: Copy,
        wanted: Iterator[Span],
        pool: ThreadPoolExecutor,
        ahead: int,
        stop: Future[None],
    ) -> None:
        self._place, self._path, self._wanted, self._pool = place, copy.path, wanted, pool
        self._ahead, self._stop = ahead, stop
        self._coming: deque[Future[bytes]] = deque()
        self._rest = memoryview(b"")
        self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        while len(self._coming) < self._ahead:
            span = next(self._wanted, None)
            if span is None:
                return
            name = part_name(self._path, span.part)
            self._coming.append(self._pool.submit(self._place.get, name, span.start, span.end))

    def take(self, most: int) -> memoryview:
        """The next bytes, `most` at most; once nobody wants them any more, it raises and waits for none."""
        if not self._rest:
            either: list[Future[Any]] = [self._coming[0], self._stop]
            wait(either, return_when=FIRST_COMPLETED)
            try:
                if self._stop.done():
                    raise CancelledError
                self._rest = memoryview(self._coming.popleft().result())
            except BaseException:
                self.drop()
                raise
            self._fetch_ahead()
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    def drop(self) -> None:
        """No more is wanted."""
        for future in self._coming:
            future.cancel()
