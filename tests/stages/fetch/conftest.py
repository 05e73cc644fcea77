"""Fixtures of the download tests."""

import pytest

from tests.stages.fetch import hub_server


@pytest.fixture
def hub(monkeypatch):
    """A loopback hub; no proxy, token or setting of this machine reaches the client."""
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    for name in (*proxies, "MODELSCOPE_API_TOKEN", "MODELSCOPE_ENDPOINT", "MODELSCOPE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", "/nonexistent")
    with hub_server.serve() as served:
        yield served
