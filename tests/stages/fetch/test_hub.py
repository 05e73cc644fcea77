"""The real modelscope client against a loopback hub."""

import os
import signal
import subprocess
import sys

import pytest

from stages.base.errors import InputError
from stages.fetch import hub as fetching
from stages.fetch.listing import matching
from tests.processes import wait_until
from tests.stages.fetch.settings import fetch

WEIGHTS = bytes(range(256)) * 4000
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS, "deep/config.json": b"[]", "README.md": b"hi"}
NAME = "Qwen/tiny"
KEY = f"model/{NAME}"

CHILD = """
import sys
from pathlib import Path
from stages.fetch.hub import download
from tests.stages.fetch.settings import fetch
config = fetch(endpoint=sys.argv[1], cache_dir=sys.argv[3] or None)
got = download("model", "Qwen/tiny", "master", lambda files, origin: list(files), config, Path(sys.argv[2]))
print(*(file.sha256 for file in got.files))
"""


@pytest.fixture
def tiny(hub):
    hub.repositories[KEY] = dict(FILES)
    return hub


def take(*patterns):
    return lambda files, origin: [
        result for pattern in patterns for result in matching(files, origin, pattern)
    ]


def download(hub, tmp_path, select=None, revision="master", progress=lambda done, total: None, **changes):
    config = fetch(endpoint=hub.url, **changes)
    select = select or take("*.json", "*.safetensors")
    return fetching.download("model", NAME, revision, select, config, tmp_path, progress)


def child(hub, work, cache=""):
    command = [sys.executable, "-c", CHILD, hub.url, str(work), str(cache)]
    environment = {**os.environ, "NO_PROXY": "*"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_killed_download_is_resumed(tiny, tmp_path):
    tiny.bytes_per_s = 200_000
    killed = child(tiny, tmp_path)
    partial = tmp_path / "models/Qwen--tiny/snapshots/master/model.safetensors.incomplete"
    wait_until(lambda: partial.exists() and partial.stat().st_size > 100_000, 60, killed)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    retained = partial.stat().st_size
    assert 100_000 < retained < len(WEIGHTS)
    tiny.bytes_per_s = 0
    tiny.requests.clear()
    got = download(tiny, tmp_path)
    assert (got.root / "model.safetensors").read_bytes() == WEIGHTS
    (resumed,) = [seen for seen in tiny.downloads() if seen.file == "model.safetensors"]
    assert resumed.headers["Range"] == f"bytes={retained}-"


@pytest.mark.parametrize("listed", [{"Sha256": "0" * 64}, {"Size": len(WEIGHTS) + 1}])
def test_bytes_that_differ_from_the_listing_are_reported_and_removed(tiny, tmp_path, monkeypatch, listed):
    monkeypatch.setattr("modelscope_hub._download.DOWNLOAD_INTEGRITY_RETRY_BACKOFF", 0.01)
    tiny.listed["model.safetensors"] = listed
    with pytest.raises(InputError, match=r"model\.safetensors: File(Integrity|SizeMismatch)Error"):
        download(tiny, tmp_path)
    assert len([seen for seen in tiny.downloads() if seen.file == "model.safetensors"]) <= 3
    assert not list(tmp_path.rglob("model.safetensors*"))


@pytest.mark.parametrize(
    ("status", "revision", "reported"),
    [
        (0, "v9", r"Qwen/tiny@v9 at http://127\.0\.0\.1:\d+: does not exist \(HTTP 404\); check"),
        (401, "master", r"access refused \(HTTP 401\); set MODELSCOPE_API_TOKEN"),
    ],
)
def test_a_refusal_is_not_retried(tiny, tmp_path, status, revision, reported):
    tiny.statuses = [status] * bool(status)
    with pytest.raises(InputError, match=reported):
        download(tiny, tmp_path, revision=revision)
    assert len(tiny.requests) == 1


@pytest.mark.parametrize(
    "path", ["../escape.txt", "/etc/escape.txt", "a/../../escape.txt", "a\\..\\b", "C:/x", "a//b"]
)
def test_a_listing_that_leads_out_is_refused_before_anything_is_written(tiny, tmp_path, path):
    tiny.listed[path] = {}
    with pytest.raises(InputError, match="leads out of the download directory"):
        download(tiny, tmp_path / "work")
    assert not tiny.downloads()
    assert not list(tmp_path.rglob("*.json")) and not list(tmp_path.rglob("escape*"))


def test_a_link_that_leads_out_is_refused(tiny, tmp_path):
    root = tmp_path / "work" / "models/Qwen--tiny/snapshots/master"
    root.mkdir(parents=True)
    (root / "deep").symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"deep/config\.json: would be written to .*outside"):
        download(tiny, tmp_path / "work", take("deep/*.json"))
    assert not (tmp_path / "config.json").exists()


def test_two_processes_with_a_shared_cache_transfer_once(tiny, tmp_path):
    tiny.bytes_per_s = 2_000_000
    both = [child(tiny, tmp_path / name, tmp_path / "cache") for name in ("a", "b")]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    assert len([seen for seen in tiny.downloads() if seen.file == "model.safetensors"]) == 1


def test_the_token_is_sent_to_the_hub_only(tiny, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "ms-very-secret")
    download(tiny, tmp_path)
    assert all(seen.headers["Authorization"] == "Bearer ms-very-secret" for seen in tiny.downloads())
    tiny.statuses = [403]
    with pytest.raises(InputError, match="the token in MODELSCOPE_API_TOKEN may not read it") as caught:
        download(tiny, tmp_path)
    reported = "".join(capfd.readouterr()) + str(caught.value)
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert "ms-very-secret" not in reported
    assert b"ms-very-secret" not in written


def test_a_password_in_the_endpoint_is_never_shown(tiny, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("modelscope_hub._legacy_api.REPO_TREE_PAGE_MAX_ATTEMPTS", 1)
    monkeypatch.setattr("modelscope_hub._download.DOWNLOAD_RETRY_TIMES", 0)
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", tiny.url.replace("//", "//user:hunter2@"))
    got = fetching.download("model", NAME, "master", take("*.json"), fetch(), tmp_path)
    assert got.origin == f"model {NAME}@master at {tiny.url.replace('//', '//***@')}"
    tiny.statuses = [503] * 9
    with pytest.raises(InputError) as busy:
        fetching.download("model", NAME, "master", take("*.json"), fetch(), tmp_path)
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://user:hunter2@127.0.0.1:9")
    with pytest.raises(InputError) as dead:
        fetching.download("model", NAME, "master", take("*.json"), fetch(), tmp_path)
    reported = "".join(capfd.readouterr()) + str(got.record()) + str(busy.value) + str(dead.value)
    assert "hunter2" not in reported


def test_the_files_are_those_that_the_modelscope_package_itself_downloads(tiny, tmp_path, monkeypatch):
    modelscope = pytest.importorskip("modelscope")
    monkeypatch.setenv("MODELSCOPE_HOME", str(tmp_path / "home"))
    reference = modelscope.snapshot_download(
        NAME, revision="master", local_dir=str(tmp_path / "theirs"), endpoint=tiny.url, token="x"
    )
    reported = []
    got = download(tiny, tmp_path, take("*", "deep/*"), progress=lambda *words: reported.append(words))
    assert {file.path for file in got.files if file.listed} == FILES.keys()
    total = sum(map(len, FILES.values()))
    assert reported[-1] == (total, total) and reported == sorted(reported)
    for path in FILES:
        with open(os.path.join(reference, path), "rb") as file:
            assert file.read() == (got.root / path).read_bytes()
