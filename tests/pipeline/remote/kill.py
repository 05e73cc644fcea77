"""A process that is killed at random moments: push or pull, with URL STORE STAGE FINGERPRINT as arguments."""

import sys
from pathlib import Path

from pipeline.store.remote.remote import Remote
from pipeline.store.remote.transfer import pull, push
from pipeline.store.store import Key, Store

if __name__ == "__main__":
    what, url, store, stage, fingerprint = sys.argv[1:]
    print("begun", flush=True)
    print(bool({"push": push, "pull": pull}[what](Remote(url), Store(Path(store)), Key(stage, fingerprint))))
