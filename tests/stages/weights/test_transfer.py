"""Threads that copy: the first error stops them all, and their number does not change the result."""

import threading

import numpy as np
import pytest

from stages.weights.outputs import OutputFiles
from stages.weights.sources import as_tensor, open_directory
from stages.weights.transfer import Move, transfer
from tests.stages.weights.checkpoints import write_safetensors


@pytest.mark.parametrize("threads", [1, 4])
def test_error_in_any_thread_stops_all(tmp_path, monkeypatch, threads):
    monkeypatch.setattr("stages.weights.transfer.CHUNK_BYTES", 8)
    write_safetensors(tmp_path / "x.safetensors", {"w": np.arange(4000, dtype=np.uint32)}, "float32")
    tensor = as_tensor(open_directory(tmp_path)["w"])
    reports = []

    def progress(done, total):
        reports.append(done)
        if len(reports) == 10:
            raise RuntimeError("the tenth")

    before = threading.active_count()
    with OutputFiles() as files:
        file = files.create(tmp_path / "out" / "y.safetensors", [("w", "F32", (4000,))])
        with pytest.raises(RuntimeError, match="the tenth"):
            transfer([Move(tensor, tuple(file.targets("w", (slice(0, 4000),))), "F32")], threads, progress)
        assert threading.active_count() == before
    assert 10 <= len(reports) < 20


def test_number_of_threads_does_not_change_the_result(tmp_path, monkeypatch):
    monkeypatch.setattr("stages.weights.transfer.CHUNK_BYTES", 100)
    source = np.random.default_rng(0).integers(0, 2**32, (50, 30), dtype=np.uint32)
    write_safetensors(tmp_path / "x.safetensors", {"w": source}, "float32")
    tensor = as_tensor(open_directory(tmp_path)["w"])
    box = (slice(7, 43), slice(3, 21))
    for threads in (1, 8):
        with OutputFiles() as files:
            file = files.create(tmp_path / str(threads) / "y.safetensors", [("w", "F32", (36, 18))])
            written = transfer([Move(tensor, tuple(file.targets("w", box)), "F32")], threads)
        assert written == 36 * 18 * 4
        content = (tmp_path / str(threads) / "y.safetensors").read_bytes()
        assert content.endswith(np.ascontiguousarray(source[box]).tobytes())
