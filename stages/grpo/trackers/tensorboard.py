"""TensorBoard event files."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stages.grpo.trackers import Tracker, numbers

# tensorboardX 2.6.5 imports torch, if it is installed, to name a type: 0.17 GiB that a run does not need.
_torch = sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # None makes its import fail
tensorboard_x: Any = import_module("tensorboardX")
if _torch is None:
    del sys.modules["torch"]


class TensorBoard(Tracker):
    """Event files, complete on disk after each step: SummaryWriter's thread would hang on a full disk."""

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._writer = tensorboard_x.event_file_writer.EventsWriter(str(self.directory / "events"))

    def add(self, row: Mapping[str, Any]) -> None:
        for name, value in numbers(row).items():
            event = tensorboard_x.proto.event_pb2.Event(
                summary=tensorboard_x.summary.scalar(name, value), step=row["step"], wall_time=row["time_s"]
            )
            self._writer.write_event(event)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
