"""Sums and gathers among the workers of one machine, over sockets between each two of them.

4 MiB between two workers on two cores take 5 ms; MindSpore's own collectives (2.7.0, CPU), which support only
the group of all workers, take 32 ms. Importing this module imports no MindSpore.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from stages.weights.dtypes import Array

CHUNK = 2**17
"""Bytes sent at a time. Both sides send before they receive, so they must fit into a socket's buffer."""
RANK, CALL = struct.Struct("=i"), struct.Struct("=iq")
MEETING_DIRECTORY = "GRPOFLOW_MEETING_PLACE"
"""Variable with the directory of a job's sockets: private to the user, with a short path, set by
launch/process/paced_msrun.py."""
NAP_S = 0.01
MEETING_TIMEOUT_S = 300.0
"""Limit for the connections among all workers, which connect after their import of MindSpore."""


class Links:
    """A worker's connections to all others."""

    def __init__(self, rank: int, world: int, directory: Path, timeout_s: float = MEETING_TIMEOUT_S) -> None:
        """Connect all workers of this machine by MEETING_DIRECTORY; return once all have called this.

        Raises:
            ConnectionError: after `timeout_s` a worker had not called this.
        """
        self.rank, address = rank, directory / str(rank)
        self.peers: dict[int, socket.socket] = {}
        deadline_s = time.monotonic() + timeout_s
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(world)
            try:
                for lower in range(rank):
                    self.peers[lower] = connect(directory / str(lower), deadline_s)
                    self.peers[lower].sendall(RANK.pack(rank))
                for _ in range(rank + 1, world):
                    listener.settimeout(max(NAP_S, deadline_s - time.monotonic()))
                    peer, _ = listener.accept()
                    peer.settimeout(max(NAP_S, deadline_s - time.monotonic()))
                    self.peers[RANK.unpack(receive(peer, RANK.size))[0]] = peer
            except TimeoutError:
                absent = sorted({*range(world)} - {rank, *self.peers})
                names = ", ".join(map(str, absent))
                message = (
                    f"worker {rank} waited {timeout_s:g} s for workers {names}, which have not connected"
                )
                raise ConnectionError(f"{message}; see their logs") from None
        for peer in self.peers.values():
            peer.settimeout(None)
        address.unlink()
        with contextlib.suppress(OSError):  # not empty, but for the last worker
            directory.rmdir()
        for peer in self.peers.values():
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * CHUNK)

    def sum(self, x: Array, ranks: Sequence[int], call: int, count: int | None = None) -> Array:
        """Sum the arrays `x` of `ranks` in their order, so that all have equal results to the last bit.

        Args:
            x: float32, of the same shape on all.
            ranks: of the workers that call this, this one among them.
            call: number of this call in the graphs, the same on all.
            count: rows to send, from the first; the remaining rows are undefined afterwards. None: all.
        """
        total = np.empty_like(x, order="C")
        sums = total[:count].reshape(-1)

        def add(start: int, end: int, parts: Sequence[Array]) -> None:
            np.add(parts[0], parts[1], out=sums[start:end])
            for part in parts[2:]:
                sums[start:end] += part

        self._exchange(x[:count], ranks, call, add)
        return total

    def gather(self, x: Array, ranks: Sequence[int], call: int) -> Array:
        """Gather arrays [n, ...] of `ranks`, in their order, to [len(ranks) * n, ...]; see `sum`."""
        gathered = np.empty((len(ranks), x.size), x.dtype)

        def store(start: int, end: int, parts: Sequence[Array]) -> None:
            for row, part in zip(gathered, parts, strict=True):
                row[start:end] = part

        self._exchange(x, ranks, call, store)
        return gathered.reshape(len(ranks) * x.shape[0], *x.shape[1:])

    def _exchange(
        self, x: Array, ranks: Sequence[int], call: int, take: Callable[[int, int, Sequence[Array]], None]
    ) -> None:
        """Exchange `x` in chunks with the other ranks; `take` receives each chunk of all ranks."""
        flat, peers = np.ascontiguousarray(x).reshape(-1), [rank for rank in ranks if rank != self.rank]
        self._check_call(peers, call, flat.nbytes)
        step = CHUNK // flat.itemsize
        parts = {rank: np.empty(min(step, flat.size), flat.dtype) for rank in peers}
        for start in range(0, flat.size, step):
            segment = flat[start : start + step]
            for rank in peers:
                self.peers[rank].sendall(segment.data)
            for rank in peers:
                fill(self.peers[rank], parts[rank][: segment.size])
            held = [segment if rank == self.rank else parts[rank][: segment.size] for rank in ranks]
            take(start, start + segment.size, held)

    def _check_call(self, peers: Sequence[int], call: int, size: int) -> None:
        for rank in peers:
            self.peers[rank].sendall(CALL.pack(call, size))
        for rank in peers:
            call_of_peer = CALL.unpack(receive(self.peers[rank], CALL.size))
            if call_of_peer != (call, size):
                message = f"worker {rank} is at call {call_of_peer[0]} with {call_of_peer[1]} bytes"
                raise RuntimeError(f"{message}, worker {self.rank} at call {call} with {size}")


def connect(path: Path, deadline_s: float) -> socket.socket:
    """Connect to the worker that listens at `path`, waiting until it does.

    Raises:
        TimeoutError: it does not listen at `deadline_s` of time.monotonic().
    """
    peer = socket.socket(socket.AF_UNIX)
    while True:
        peer.settimeout(max(NAP_S, deadline_s - time.monotonic()))
        try:
            peer.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline_s:
                peer.close()
                raise TimeoutError(path) from None
            time.sleep(NAP_S)
        else:
            return peer


def receive(peer: socket.socket, count: int) -> bytes:
    """Receive the next `count` bytes from a peer."""
    data = np.empty(count, np.uint8)
    fill(peer, data)
    return data.tobytes()


def fill(peer: socket.socket, array: Array) -> None:
    """Read an array [n] from a peer.

    Raises:
        ConnectionError: the peer has ended.
    """
    left = array.data.cast("B")
    while left:
        count = peer.recv_into(left)
        if not count:
            raise ConnectionError("another worker has ended")
        left = left[count:]
