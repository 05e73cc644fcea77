"""S3 as fsspec would have it, by botocore: threads of ours rather than one loop move what it signs.

It knows every place where AWS keeps credentials, regions and addresses: environment, ~/.aws, SSO, instances.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from typing import Any

import fsspec

CONNECT_S = 10.0
DENIED = ("ExpiredToken", "InvalidToken")
"""Which servers answer with 400, as they answer much that passes."""


class S3(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Objects of any bucket; paths are BUCKET/KEY."""

    protocol = ("s3", "s3a")

    def __init__(self, endpoint: str | None, timeout_s: float, connections: int, **options: Any) -> None:
        """Nothing is sent yet; `endpoint` None: what the environment or ~/.aws/config says."""
        import botocore.session
        from botocore.config import Config

        super().__init__(**options)
        only_where_asked = "when_required"  # OBS and older servers know no others; digests are compared here
        config = Config(
            retries={"total_max_attempts": 1},
            connect_timeout=min(CONNECT_S, timeout_s),
            read_timeout=timeout_s,
            max_pool_connections=connections,
            request_checksum_calculation=only_where_asked,
            response_checksum_validation=only_where_asked,
        )
        self._timeout_s = timeout_s
        session = botocore.session.get_session()
        self._client = session.create_client("s3", endpoint_url=endpoint, config=config)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[dict[str, Any]]:
        """What lies directly below a path; nothing where there is nothing."""
        bucket, _slash, below = path.partition("/")
        prefix = f"{below.rstrip('/')}/" if below else ""
        pages = self._client.get_paginator("list_objects_v2")
        found: list[dict[str, Any]] = []
        with _as_os_errors():
            for page in pages.paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
                found += [
                    {"name": entry["Key"], "size": entry["Size"], "LastModified": entry["LastModified"]}
                    for entry in page.get("Contents", ())
                ]
                found += [
                    {"name": entry["Prefix"], "type": "directory"} for entry in page.get("CommonPrefixes", ())
                ]
        return found

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Bytes `start` to `end` of an object; a server that sends them drop by drop is given up, too."""
        bucket, _slash, key = path.partition("/")
        which = {} if end is None else {"Range": f"bytes={start or 0}-{end - 1}"}
        with _as_os_errors():
            body = self._client.get_object(Bucket=bucket, Key=key, **which)["Body"]
            limit = threading.Timer(self._timeout_s, body._raw_stream.shutdown)
            limit.daemon = True
            limit.start()
            try:
                content: bytes = body.read()
            finally:
                limit.cancel()
        return content

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """Write an object."""
        bucket, _slash, key = path.partition("/")
        with _as_os_errors():
            self._client.put_object(Bucket=bucket, Key=key, Body=value)

    def rm_file(self, path: str) -> None:
        """Remove an object, if it is there."""
        bucket, _slash, key = path.partition("/")
        with _as_os_errors():
            self._client.delete_object(Bucket=bucket, Key=key)


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    """What is not there, and what is not allowed, as errors that need no knowledge of S3."""
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status == 404:
            raise FileNotFoundError(errno.ENOENT, str(error)) from error
        if status in (401, 403) or error.response.get("Error", {}).get("Code") in DENIED:
            raise PermissionError(errno.EACCES, str(error)) from error
        raise
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise PermissionError(errno.EACCES, str(error)) from error
