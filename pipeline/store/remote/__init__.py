"""A remote: a plain copy of artifacts and run records below a URL, shared by several stores.

    URL/STAGE/FINGERPRINT-MANIFEST8/    the files of one artifact under their own names; manifest.json last
    URL/runs/RUN.jsonl                  the events of one run, written by its store
    URL/runs/RUN+ID.jsonl               an event of that run (pinned, named, …) added by another store
    URL/.tmp/ID                         a file being written (file:// and sftp:// only)

MANIFEST8 is the first 8 digits of the SHA-256 of manifest.json, so stores that built one fingerprint with
different bytes write to different directories. A directory without manifest.json is incomplete and ignored.
Every function that makes requests raises RemoteError if the remote does not answer.
"""

RUNS, TEMPORARY = "runs", ".tmp"
