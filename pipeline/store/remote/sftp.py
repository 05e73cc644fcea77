"""SFTP connections to servers whose keys are in ~/.ssh/known_hosts."""

import os
from typing import Any

import paramiko


class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """A policy that accepts only known keys; fsspec by itself accepts any."""

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Raise PermissionError unless the key is known."""
        keys = paramiko.HostKeys(os.path.expanduser("~/.ssh/known_hosts"))
        if not keys.check(hostname, key):
            problem = (
                "has another key than in known_hosts" if keys.lookup(hostname) else "is not in known_hosts"
            )
            raise PermissionError(f"{hostname} {problem}; connect with `ssh` and compare its key")


def connect(kind: Any, options: dict[str, Any], timeout_s: float) -> Any:
    """Return a file system of a class; all its waits are limited."""
    timeouts = dict.fromkeys(("timeout", "auth_timeout", "banner_timeout"), timeout_s)
    system = kind(**options, **timeouts, host_key_policy=KnownHosts())
    system.ftp.get_channel().settimeout(timeout_s)
    return system
