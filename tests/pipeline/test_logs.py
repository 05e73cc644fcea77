"""`grpoflow logs`: choice of the file, and following."""

import os
import shutil

import pytest

from pipeline.cli import logs, main
from pipeline.config.load import load
from pipeline.run.origin import origin
from pipeline.store import history, leases

GRPO = "grpo-fedcba9876543210"
ARTIFACTS = {"split": "split/0123456789abcdef", "grpo": "grpo/fedcba9876543210"}


@pytest.fixture
def store(tmp_path):
    """A run with the logs of two stages; grpo has two workers, and two attempts."""
    plain = load([]).plain()
    history.record(tmp_path, "r1", "started", overrides=[], artifacts=ARTIFACTS, config=plain)
    write(tmp_path, "split-0123456789abcdef/stage.log", "split done\n", 1)
    write(tmp_path, "split-0123456789abcdef/worker_0.log", "", 3)  # it died before its first line
    write(tmp_path, f"{GRPO}/worker_0.log", "old\n", 2)
    write(tmp_path, f"{GRPO}+1/attempt_1/worker_0.log", "first attempt\n", 4)
    write(tmp_path, f"{GRPO}+1/attempt_2/worker_0.log", "one\ntwo\n", 5)
    write(tmp_path, f"{GRPO}+1/attempt_2/worker_12.log", "twelve\n", 6)
    write(tmp_path, f"{GRPO}xx/stage.log", "another artifact\n", 9)
    return tmp_path


def write(store, name, text, second):
    file = store / ".logs" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(file, (second, second))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "one\ntwo\n"),
        ("last grpo", "one\ntwo\n"),
        ("r1 split", "split done\n"),
        ("--worker 12 -f", "twelve\n"),
    ],
)
def test_the_selected_log_is_printed(store, words, text, shown):
    output = shown("logs", *words.split(), f"store={store}")
    assert output.out == text and output.err.startswith(f"==> {store / '.logs'}")


def test_missing_logs_are_refused(store, capsys):
    history.record(store, "r2", "started", overrides=[], artifacts={"fetch": "fetch/00"}, config={})
    for words, code in (("r1 --worker 3", 1), ("r1 sft", 2), ("none", 2), ("r2", 2)):
        assert main(["logs", *words.split(), f"store={store}"]) == code
        assert capsys.readouterr().err.startswith("error: ")


def test_follow_continues_with_the_next_stage_until_the_run_ends(store, monkeypatch, shown):
    shutil.rmtree(store / ".logs")  # it waits for the first log
    split, grpo = "split-0123456789abcdef/stage.log", f"{GRPO}+1/worker_0.log"
    lease = leases.take(store, "r1")

    def end():
        lease.release()
        history.record(store, "r1", "finished", result={})

    content = "训练\n".encode()
    happens = [
        *(lambda part=content[:size]: write(store, split, part, 1) for size in (1, 4, len(content))),
        lambda: write(store, grpo, "three\n", 2_000_000_000), end,
    ]  # fmt: skip
    monkeypatch.setattr(logs.time, "sleep", lambda _: happens.pop(0)())
    output = shown("logs", "-f", f"store={store}")
    assert output.out == "训练\nthree\n" and output.err.count("==> ") == 2


def test_a_report_links_the_same_logs_and_shows_the_command(store, shown):
    page = store / "report" / "0123456789abcdef"
    history.record(store, "r1", "named", name="first one")
    page.mkdir(parents=True)
    facts = origin(store, history.find(store, "r1"), page)
    assert (facts["run"], facts["name"], facts["command"]) == ("r1", "first one", "grpoflow run")
    assert facts["logs"].keys() == ARTIFACTS.keys()
    for stage, link in facts["logs"].items():
        assert (page / link).read_text() == shown("logs", "r1", stage, f"store={store}").out
