"""What process.py and its child process agree on; child.py lists the messages.

It is apart from both because a plan reads process.py, and only the child needs asyncio.
"""

import signal
import struct
from typing import Any

Plain = dict[str, Any]
"""A message."""
LENGTH = struct.Struct("<Q")
"""Bytes of the message that follows."""
WHERE_SIGNAL = signal.SIGUSR1
"""Signal that makes the child print the lines that it is in."""
MATHS = "stages.rewards.maths:maths"
"""Function of one completion; math-verify is optional and slow to import."""
OURS = frozenset({"completions", "solutions", "prompts"})
"""Names of arguments that a column of the dataset cannot have."""
