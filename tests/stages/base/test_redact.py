import pytest

from stages.base.redact import redact, redacted, secret_in

SECRETS = [
    "s3://KEY:SECRET@bucket/prefix", "s3://KEY:SE/CR+SECRET@bucket/prefix", "s3://SECRET@bucket/x",
    "https://user:SECRET@host:8080/x?y=1", "https://user:p@SECRET@host/x", "https://user:%53SECRET@host/x",
    "HTTPS://user:SECRET@[::1]:80/x", "sftp+ssh://user:SECRET@host/dir",
    "https://host/x?Signature=SECRET&Expires=1", "https://host/x?SECRET", "https://host#access_token=SECRET",
    "file:///x s3://KEY:SECRET@b/y?token=SECRET", "sftp://user@host/x,s3://KEY:SECRET@b",
    "{'remote': \"s3://KEY:SECRET@b/y\"}", "/a/b?Signature=SECRET&Expires=1 (Caused by x)",
    "https:/user:SECRET@host/x", "/work/https:/user:SECRET@host/x", "s3:/KEY:SE/CR+SECRET@b/y",
    "git+ssh:/me:SECRET@host/x", "HTTP:/SECRET@host", "https://host/x?%74oken=SECRET",
]  # fmt: skip
HARMLESS = [
    "s3://bucket/prefix", "sftp://user@host:22/dir", "http://host:8080/model@main",
    "https://host:80/a/b#section", "Who are you? You know: a@b.", "What is {question}?",
    "https://host/api/repo?Revision=master&FilePath=train.jsonl", "dataset.question=why?because=so",
    "sftp:/user@host/dir", "/mnt/s3:/bucket/me", "host:/export/data@2024", "engine:/a@b",
    "hf_safetensors", "hf_hub_download_of_all_files", "sk-learn", "scikit-learn-compatible-estimators",
    "task-0123456789abcdef0123", "AKIA is a prefix", "ms-swift", "eyJ is one too", "ghp_",
]  # fmt: skip
DIGITS, LETTERS = "0123456789", "abcdefghijklmnopqrstuvwxyz"
TOKENS = [
    f"hf_{LETTERS}ABCDEFGH", f"ghp_{DIGITS}{LETTERS}", f"gho_{LETTERS}{DIGITS}", f"github_pat_1_{LETTERS}",
    "AKIA" + "IOSFODNN7EXAMPLE",
    f"ASIA{DIGITS}ABCDEF", f"sk-{LETTERS}{DIGITS}", f"sk-proj-{LETTERS}_{DIGITS}-x",
    f"sk-ant-api03-{LETTERS}{DIGITS}", f"glpat-{LETTERS[:20]}", f"xoxb-{DIGITS}-{LETTERS}",
    f"AIza{LETTERS}{DIGITS[:9]}", "ms-0f8fad5b-d9cb-469f-a165-70867728950e",
    f"eyJ{LETTERS}.eyJ{LETTERS}.{LETTERS}", "-----BEGIN RSA PRIVATE KEY-----",
]  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("around", ["{}", "remote={}", "error: {}: no", "a {} b {}"])
def test_secrets_of_every_form_of_url_are_hidden(text, around):
    typed = around.format(text, text)
    for hide in (redact, redacted):
        shown = hide(typed)
        assert "SECRET" not in shown
        assert hide(shown) == shown


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["{}", "Use {}, and think.", "--env HF_TOKEN={}", "a_{}"])
def test_tokens_are_recognised_by_their_form(token, around):
    text = around.format(token)
    assert secret_in(text) is not None
    assert token not in redact(text) and redact(redact(text)) == redact(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_text_without_a_secret_is_unchanged(text):
    assert redacted(text) == text
    assert secret_in(text) is None
    values = {"a": ["s3://k:SECRET@b", 1, None], "b": {"c": (text,)}, "d": True}
    assert redacted(values) == {"a": ["s3://***@b", 1, None], "b": {"c": [text]}, "d": True}


def test_the_token_and_passwords_of_the_environment_are_hidden(monkeypatch):
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "ms-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-2")
    monkeypatch.setenv("https_proxy", "http://me:p%40ss@proxy:8080")
    assert redact("ms-1 and p@ss and p%40ss and aws-2") == "*** and *** and *** and ***"
    assert secret_in("a proxy with p@ss") is None  # other texts may hold it too
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-2/abcdefgh")
    assert secret_in("is it aws-2/abcdefgh?") is not None
