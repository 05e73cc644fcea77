"""`grpoflow logs`: choice of the file, and following."""

import os

import pytest

from pipeline.cli import logs, main
from pipeline.config.load import load
from pipeline.run.origin import origin
from pipeline.store import history, leases

ARTIFACTS = {"split": "split/0123456789abcdef", "grpo": "grpo/fedcba9876543210"}


@pytest.fixture
def store(tmp_path):
    """A run with the logs of two stages; grpo has two workers, and two attempts."""
    plain = load([]).plain()
    history.record(tmp_path, "r1", "started", overrides=[], artifacts=ARTIFACTS, config=plain)
    grpo = "grpo-fedcba9876543210"
    write(tmp_path, "split-0123456789abcdef/stage.log", "split done\n", 1)
    write(tmp_path, "split-0123456789abcdef/worker_0.log", "", 3)  # it died before its first line
    write(tmp_path, f"{grpo}/worker_0.log", "old\n", 2)
    write(tmp_path, f"{grpo}+1/attempt_1/worker_0.log", "first attempt\n", 4)
    write(tmp_path, f"{grpo}+1/attempt_2/worker_0.log", "one\ntwo\n", 5)
    write(tmp_path, f"{grpo}+1/attempt_2/worker_12.log", "twelve\n", 6)
    write(tmp_path, f"{grpo}xx/stage.log", "another artifact\n", 9)
    return tmp_path


def write(store, name, text, second):
    file = store / ".logs" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
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
def test_the_selected_log_is_printed(store, words, text, capsys):
    assert main(["logs", *words.split(), f"store={store}"]) == 0
    shown = capsys.readouterr()
    assert shown.out == text and shown.err.startswith(f"==> {store / '.logs'}")


def test_a_character_that_arrives_in_two_parts_is_printed(tmp_path, capsys):
    printer, content = logs.Printer(), "训练\n".encode()
    for end in (1, 4, len(content)):
        (tmp_path / "log").write_bytes(content[:end])
        printer.show(tmp_path / "log")
    assert capsys.readouterr().out == "训练\n"


def test_missing_logs_are_refused(store, capsys):
    history.record(store, "r2", "started", overrides=[], artifacts={"fetch": "fetch/00"}, config={})
    for words, code in (("r1 --worker 3", 1), ("r1 sft", 2), ("none", 2), ("r2", 2)):
        assert main(["logs", *words.split(), f"store={store}"]) == code
        assert capsys.readouterr().err.startswith("error: ")


def test_follow_waits_for_the_first_log(tmp_path, monkeypatch, capsys):
    lease = leases.take(tmp_path, "r1")
    history.record(tmp_path, "r1", "started", overrides=[], artifacts=ARTIFACTS, config=load([]).plain())
    happens = [lambda: write(tmp_path, "split-0123456789abcdef/stage.log", "begun\n", 1), lease.release]
    monkeypatch.setattr(logs.time, "sleep", lambda _: happens.pop(0)())
    assert main(["logs", "-f", f"store={tmp_path}"]) == 0
    assert capsys.readouterr().out == "begun\n"


def test_follow_continues_with_the_next_stage_until_the_run_ends(store, monkeypatch, capsys):
    lease = leases.take(store, "r1")

    def grows():
        with (store / ".logs" / "grpo-fedcba9876543210+1" / "attempt_2" / "worker_0.log").open("a") as file:
            file.write("three\n")

    def ends():
        lease.release()
        history.record(store, "r1", "finished", result={})

    later = 2_000_000_000
    happens = [grows, lambda: write(store, "split-0123456789abcdef/stage.log", "again\n", later), ends]
    monkeypatch.setattr(logs.time, "sleep", lambda _: happens.pop(0)())
    assert main(["logs", "-f", f"store={store}"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "one\ntwo\nthree\nagain\n" and shown.err.count("==> ") == 2


def test_a_report_links_the_same_logs_and_shows_the_command(store, capsys):
    page = store / "report" / "0123456789abcdef"
    history.record(store, "r1", "named", name="first one")
    page.mkdir(parents=True)
    facts = origin(store, history.find(store, "r1"), page)
    assert (facts["run"], facts["name"], facts["command"]) == ("r1", "first one", "grpoflow run")
    assert facts["logs"].keys() == ARTIFACTS.keys()
    for stage, link in facts["logs"].items():
        assert main(["logs", "r1", stage, f"store={store}"]) == 0
        assert (page / link).read_text() == capsys.readouterr().out
