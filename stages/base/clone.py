"""A file of one's own with another's content, which need not cost a second time."""

import fcntl
import shutil
from pathlib import Path

_FICLONE = 0x40049409
"""linux/fs.h: share the blocks until one of the two is written (Btrfs, XFS)."""


def clone(source: Path, target: Path) -> None:
    """Make the new file `target` with the content of `source`, sharing blocks where the file system can.

    Mode, owner and times are those of a new file: whatever is done to it, `source` stays as it is.
    """
    with source.open("rb") as old, target.open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            return
        except OSError:  # another file system, or one that shares no blocks
            pass
    shutil.copyfile(source, target)
