"""What is killed at random moments: push or pull, with URL STORE STAGE FINGERPRINT as arguments."""

import sys
from pathlib import Path

from pipeline.store.remote import copies, disk, pull
from pipeline.store.remote.place import Place
from pipeline.store.remote.push import push
from pipeline.store.store import Key, Store

if __name__ == "__main__":
    what, url, store, stage, fingerprint = sys.argv[1:]
    copies.PART_BYTES, disk.BLOCK_BYTES, pull.LANE_BYTES, pull.LANES = 1 << 16, 1 << 15, 1 << 20, 3
    print("begun", flush=True)
    print(
        bool({"push": push, "pull": pull.pull}[what](Place(url), Store(Path(store)), Key(stage, fingerprint)))
    )
