"""A JSON array of objects, one at a time.

The standard library's scanner, written in C, is asked for one element after the other, so that one
element and one block of the file are in memory. Libraries that stream JSON build each value from
single events in Python and are several times slower.
"""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.fetch.record import LARGEST, BadLine, Record, as_record

BLOCK = 1 << 20
BLANK = re.compile(r"[ \t\n\r]*")


def read_array(path: Path) -> Iterator[Record | BadLine]:
    """Yield the elements of the array in `path`.

    Raises:
        InputError: the file is no array, or an element can't be parsed: where the next one begins is
            then unknown, so this can't be tolerated as a bad line can.
    """
    row = 0
    try:
        with open_regular(path) as file:
            text = _Text(file)
            if text.next_character() != "[":
                remedy = "give a JSON array of objects, or JSON lines"
                raise InputError(path, text.peek(), "must begin with [ or {", remedy)
            text.skip(1)
            more = text.next_character() != "]"
            text.skip(0 if more else 1)
            while more:
                row += 1
                yield as_record(row, text.element())
                following = text.next_character()
                text.skip(1)
                if following not in (",", "]"):
                    raise ValueError(f"{following!r} where ',' or ']' must stand")
                more = following == ","
            if text.next_character():
                raise ValueError("text follows the array")
    except OSError as error:
        raise InputError(path, None, f"can't be read: {error.strerror}", "check the path") from error
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        remedy = "mend it; the rest of an array can't be read past a broken row"
        raise InputError(f"{path}:{row} (row)", None, f"not usable JSON: {reason}", remedy) from error


class _Text:
    """A file's text with a position, of which only the rest of a block is in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder().raw_decode
        self._text, self._at, self._ended = "", 0, False

    def _read(self, size: int) -> None:
        block = self._file.read(size)
        self._ended = not block
        self._text = self._text[self._at :] + self._decode.decode(block, final=self._ended)
        self._at = 0

    def next_character(self) -> str:
        """Return the next character that is not blank without consuming it; an empty string at the end."""
        while True:
            match = BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read(BLOCK)

    def skip(self, characters: int) -> None:
        self._at += characters

    def peek(self) -> str:
        return self._text[self._at : self._at + 20]

    def element(self) -> Any:
        """Take one JSON value.

        A value is whole only if something else follows it in memory: of "12.5" there may be "12." so far.
        """
        self.next_character()  # the scanner takes no blanks
        size = BLOCK
        while True:
            try:
                value, end = self._scan(self._text, self._at)
                if self._ended or self._text[end : end + 1] not in ("", ".", "e", "E"):
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if self._ended or len(self._text) - self._at > LARGEST:
                    raise ValueError(error.msg) from error
            self._read(size)
            size *= 2  # an element of many blocks is then scanned a few times only
