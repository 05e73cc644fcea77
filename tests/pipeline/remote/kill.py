"""What is killed at random moments: push or pull, with URL STORE STAGE FINGERPRINT as arguments."""

import sys
from pathlib import Path

from pipeline.store.remote import copies
from pipeline.store.remote.place import Place
from pipeline.store.remote.pull import pull
from pipeline.store.remote.push import push
from pipeline.store.store import Key, Store

if __name__ == "__main__":
    what, url, store, stage, fingerprint = sys.argv[1:]
    copies.PART_BYTES = 1 << 16
    print(bool({"push": push, "pull": pull}[what](Place(url), Store(Path(store)), Key(stage, fingerprint))))
