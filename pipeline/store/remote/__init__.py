"""A store that others share: artifacts by fingerprint below a URL, and the records of runs.

    URL/artifacts/STAGE/FINGERPRINT/COPY.json         manifest of a whole copy; written last, removed first
    URL/artifacts/STAGE/FINGERPRINT/COPY.condemned    gc will remove this copy; nobody begins to rely on it
    URL/artifacts/STAGE/FINGERPRINT/COPY/00000000     its files one after another, in parts of 8 MiB
    URL/artifacts/STAGE/FINGERPRINT/COPY/pushing      somebody has begun to push it
    URL/runs/RUN.jsonl                                the events of one run; RUN+….jsonl: others' of it

COPY is the digest of the manifest, so that an object's name tells its content: whoever pushes the same copy
writes the same bytes, other bytes are another copy, and nothing is ever replaced by something else. Names of
files stand in the manifest alone. A condemned copy is never taken back, hence gc and a push cannot cross.
"""
