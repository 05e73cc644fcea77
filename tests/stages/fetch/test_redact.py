import pytest

from stages.fetch.redact import redact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET https://u:p@h/x failed", "GET https://***@h/x failed"),
        ("url: /a/b?Signature=abc&Expires=1 (Caused by x)", "url: /a/b?… (Caused by x)"),
        ("'http://h/x?token=1', 2", "'http://h/x?…', 2"),
        ("nothing to hide at http://h:80/x", "nothing to hide at http://h:80/x"),
    ],
)
def test_addresses_lose_users_and_queries(text, expected):
    assert redact(text) == expected


def test_the_token_and_passwords_of_the_environment_are_hidden(monkeypatch):
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "ms-1")
    monkeypatch.setenv("https_proxy", "http://me:p%40ss@proxy:8080")
    assert redact("ms-1 and p@ss and p%40ss") == "*** and *** and ***"


def test_without_secrets_nothing_changes(monkeypatch):
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "")
    assert redact("a b c") == "a b c"
