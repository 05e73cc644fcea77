"""SFTP as fsspec has it, but only with servers whose keys are known."""

from __future__ import annotations

import errno
import functools
from typing import Any


@functools.cache
def known_hosts() -> Any:
    """The class of its file systems, made here: without the package nobody need import this file's."""
    import paramiko
    from fsspec.implementations.sftp import SFTPFileSystem

    class Unknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
        """Refuses a server whose key is not known."""

        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            """Never take it."""
            rule = f"{hostname} is not found in known_hosts; connect by `ssh` once and compare its key"
            raise PermissionError(errno.EACCES, rule)

    class KnownHosts(SFTPFileSystem):  # type: ignore[misc]
        """Asks ~/.ssh/known_hosts; fsspec itself would take any server for the right one."""

        def _connect(self) -> None:
            wait_s = self.ssh_kwargs.pop("timeout")
            waits = {"timeout": wait_s, "auth_timeout": wait_s, "banner_timeout": wait_s}
            self.client = paramiko.SSHClient()
            self.client.load_system_host_keys()
            self.client.set_missing_host_key_policy(Unknown())
            try:
                self.client.connect(self.host, **waits, **self.ssh_kwargs)
            except paramiko.BadHostKeyException as error:
                rule = f"{self.host} has another key than known_hosts tells: somebody may be between"
                raise PermissionError(errno.EACCES, rule) from error
            except paramiko.AuthenticationException as error:  # trying again may lock an account
                raise PermissionError(errno.EACCES, f"{self.host}: {error}") from error
            self.ftp = self.client.open_sftp()
            self.ftp.get_channel().settimeout(wait_s)

        def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
            file = super()._open(path, mode, block_size, **kwargs)
            if "w" in mode:
                file.set_pipelined(True)  # else each 32 KiB wait for an answer
            return file

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
            """Bytes of a file, all asked for at once."""
            with self.open(path, "rb") as file:
                begin, end = start or 0, file.stat().st_size if end is None else end
                return b"".join(file.readv([(begin, end - begin)]))

    return KnownHosts
