"""grpoflow push, pull and remote status, on a remote of files."""

import shutil

import pytest

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.store import history
from pipeline.store.remote.remote import Remote
from pipeline.store.store import Store
from tests.pipeline.artifacts import complete


@pytest.fixture
def settings(tmp_path):
    """Overrides of two people with one remote."""
    remote = f"remote=file://{tmp_path}/remote"
    return {name: [f"store={tmp_path / name}", remote] for name in ("mine", "theirs")}


def test_json_names_each_artifact_its_state_and_bytes(settings, printed):
    def read(*line):
        shown = printed(*line)
        assert shown["remote"] == settings["mine"][1].removeprefix("remote=")
        return {item["artifact"]: (item["state"], item["bytes"] > 0) for item in shown["artifacts"]}

    plan, _ = complete(settings["mine"], "fetch", "convert")
    keys = [str(plan.spec(name).key) for name in ("fetch", "convert")]
    assert read("push", *settings["mine"]) == dict.fromkeys(keys, ("pushed", True))
    assert read("push", *settings["mine"]) == dict.fromkeys(keys, ("there", False))
    pulled = read("pull", *settings["theirs"])
    assert {key: pulled.pop(key) for key in keys} == dict.fromkeys(keys, ("pulled", True))
    assert set(pulled.values()) == {("absent", False)}
    assert read("pull", "fetch", *settings["theirs"]) == {keys[0]: ("here", False)}


def test_a_run_of_another_store_is_pulled_by_name_and_missing_artifacts_are_reported(settings, printed):
    plan, store = complete(settings["mine"], "fetch", "convert")
    artifacts = {name: str(plan.spec(name).key) for name in ("fetch", "convert")}
    history.record(store.root, "one", "started", overrides=[], config={}, artifacts=artifacts)
    history.record(store.root, "one", "named", name="baseline")
    fetch, convert = artifacts.values()

    def states(command, run, who, code):
        rows = printed(command, run, *settings[who], code=code)["artifacts"]
        return {row["artifact"]: row["state"] for row in rows}

    assert main(["push", "fetch", *settings["mine"]]) == 0
    assert states("pull", "one", "theirs", 1) == {fetch: "pulled", convert: "absent"}
    assert main(["push", "last", *settings["mine"]]) == 0
    assert states("pull", "baseline", "theirs", 0) == {fetch: "here", convert: "pulled"}
    reference = Store(store.root.with_name("theirs"))
    assert all(reference.problem(plan.spec(name).key, deep=True) is None for name in artifacts)
    assert main(["pull", "nothing", *settings["theirs"]]) == 2
    shutil.rmtree(store.path(plan.spec("convert").key))
    assert main(["push", "one", *settings["mine"]]) == 0  # the remote has it
    history.record(store.root, "two", "started", overrides=[], config={}, artifacts={"sft": "sft/00"})
    assert states("push", "two", "mine", 1) == {"sft/00": "absent"}


@pytest.mark.parametrize("command", ["push", "pull", "remote"])
def test_commands_without_a_remote_name_the_remedy(command, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("GRPOFLOW_REMOTE", raising=False)
    assert main([command, f"store={tmp_path}"]) == 2
    assert "remote: is not set; name one: remote=s3://BUCKET/PREFIX" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["remote", "remote.url", "remote.endpoint"])
def test_password_in_an_address_is_refused_and_not_shown(key, tmp_path, cache, capsys):
    addresses = ("s3://me:hush@bucket/x", "s3://hush@bucket", "https://x/y?t=hush", "file:///x,s3://a:hush@b")
    for address in addresses:
        assert main(["push", f"{key}={address}", f"store={tmp_path / 'store'}"]) == 2
    assert main(["push", f"{key}=s3://me:hush@bucket", "no.such.key=1"]) == 2
    assert main(["push", f"{key}=s3://me:hush@bucket", "[("]) == 2
    output = capsys.readouterr()
    assert "put credentials into the environment" in output.err and "hush" not in output.err + output.out
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(b"hush" in file.read_bytes() for file in files)


def test_plan_goes_on_without_a_server_that_refuses_connections(tmp_path, capsys):
    assert main(["plan", "remote=sftp://127.0.0.1:1/x", f"store={tmp_path}"]) == 10
    assert "Unable to connect to port 1 on 127.0.0.1; planned without it" in capsys.readouterr().err


def test_address_from_the_environment_can_be_overridden(monkeypatch):
    monkeypatch.setenv("GRPOFLOW_REMOTE", "s3://bucket/team")
    assert load([]).remote.url == "s3://bucket/team"
    assert load(["remote=sftp://me@host:2222/data"]).remote.url == "sftp://me@host:2222/data"
    assert load(["remote=none"]).remote.url is None
    monkeypatch.setenv("GRPOFLOW_REMOTE", "")
    assert not load([]).remote.url


@pytest.mark.parametrize("below", ["", "/", "/inside", "/../store"])
def test_the_store_is_no_remote_of_itself(below, tmp_path, capsys):
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for name in ("store", "link"):
        for command in ("push", "plan", "gc --remote"):
            line = [*command.split(), f"remote=file://{tmp_path}/{name}{below}", f"store={tmp_path}/store"]
            assert main(line) == 2
            assert "is the store itself, or inside it" in capsys.readouterr().err
    load([f"remote=file://{tmp_path}/store_2", f"store={tmp_path}/store"])
    load([f"remote=file://{tmp_path}", f"store={tmp_path}/store"])


def test_escapes_in_a_path_are_decoded(tmp_path):
    complete([f"store={tmp_path / 'store'}"], "strategy")
    address = f"{tmp_path.as_uri()}/a%20b%23c"
    assert main(["push", "strategy", f"remote='{address}'", f"store={tmp_path / 'store'}"]) == 0
    assert list((tmp_path / "a b#c" / "strategy").iterdir()) and not (tmp_path / "a%20b%23c").exists()
    second = f"store={tmp_path / 'second'}"
    assert main(["pull", "strategy", f"remote='{address}'", second]) == 0
    assert list((tmp_path / "second" / "strategy").iterdir())
    assert Remote("s3://bucket/a%20b")._root == "bucket/a%20b"
