"""Terminals of 40, 80 and 200 columns: no command breaks a word, an id, a path or a number."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from rich.cells import cell_len

from pipeline.cli import main, make_parsers
from pipeline.store import history
from pipeline.sweep.points import Point, show
from pipeline.terminal import Column, Table, console, say, wrapped
from tests.pipeline.artifacts import complete

FIRST, SECOND, THIRD = (
    "20260101-000000-aaaaaaaaaa",
    "20260102-000000-bbbbbbbbbb",
    "20260103-000000-cccccccccc",
)
TINY = ["layout=dp1_mp1_pp1", "train.steps=7"]
CASES = {
    "run": ["--only", "strategy", *TINY],
    "plan": [*TINY, "train.beta=0.5"],
    "sweep": ["--plan", *TINY, "train.beta=0.1,0.2", "seed=1,2"],
    "rehearse": [],
    "runs": [],
    "show": [FIRST],
    "serve": [FIRST],
    "diff": [FIRST, SECOND],
    "logs": [SECOND, "grpo"],
    "report": [SECOND],
    "watch": [SECOND, "--once"],
    "stop": [SECOND],
    "ui": ["--port", "70000"],
    "config": ["--explain", "train.beta"],
    "layouts": ["model=qwen2_5_7b", "cards=8"],
    "doctor": ["engine=mindrlhf", "engine.python=/absent/python"],
    "probe": ["reward=boxed"],
    "diagnose": ["LOGS"],
    "serve-check": ["absent"],
    "verify": [],
    "gc": ["--keep", "0"],
    "push": ["export", *TINY],
    "pull": ["fetch", *TINY],
    "remote": ["status", *TINY],
    "weights strategy": ["--out", "OUT", "model.hidden_size=64"],
    "weights convert": ["ABSENT", "OUT"],
    "weights split": ["ABSENT", "STRATEGY", "OUT"],
    "weights merge": ["ABSENT", "STRATEGY", "OUT"],
    "weights reshard": ["ABSENT", "SRC", "DST", "OUT"],
    "weights export": ["ABSENT", "REFERENCE", "OUT"],
    "tokenize": ["--input", "ABSENT.jsonl", "--tokenizer", "TOKENIZER", "--out", "OUT"],
    "completion": ["bash"],
}
"""Command -> arguments for which it prints something after a second or two."""
DATA = {"completion", "logs"}
"""Commands whose output is for programs, or is another program's."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A store of a finished, a failed and a running run, which differ in two values."""
    root = tmp_path_factory.mktemp("store") / "store"
    plan, store = complete([f"store={root}", *TINY], started=100.0, ended=107.5)
    artifacts = {spec.name: str(spec.key) for spec in plan.specs}
    config = plan.config.plain()
    for number, run in enumerate((FIRST, SECOND, THIRD)):
        overrides = [f"store={root}", *TINY, f"train.beta=0.0{number}", f"seed={number}"]
        history.record(
            root, run, "started", overrides=overrides, config=config | {"seed": number}, artifacts=artifacts
        )
    result = {
        "accuracy_sft": 0.123456789012, "accuracy_grpo": 0.456789012345, "gain": 0.333332223333,
        "prompts": 1024,
        "outcomes": {"fixed": 341, "broken": 0, "both_right": 126, "both_wrong": 557},
        "pass_at_k": {"k": 8, "sft": 0.333333333333, "grpo": 0.666666666667},
    }  # fmt: skip
    history.record(root, FIRST, "finished", result=result)
    history.record(root, FIRST, "named", name="best")
    message = (
        "stage grpo failed: exit code 1, a reason with a path /data/models/Qwen2.5-7B-Instruct/config.json"
    )
    history.record(root, SECOND, "failed", stage="grpo", message=message)
    return store.root


@pytest.fixture
def screen(root, tmp_path, monkeypatch, capsys):
    """Run a command in a terminal of some width; return what it shows, without styles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))
    (tmp_path / "LOGS").mkdir()
    (tmp_path / "TOKENIZER").mkdir()
    (tmp_path / "LOGS" / "worker_0.log").write_text("step 1\nRuntimeError: Malloc device memory failed\n")

    def run(command, *arguments, width):
        monkeypatch.setenv("COLUMNS", str(width))
        words = [*command.split(), *arguments]
        parser = make_parsers()[1][command]
        if parser.get_default("reads_overrides") and "--help" not in words:
            words += [f"store={root}"]
            words += [f"remote=file://{tmp_path}/{width}"] if command in ("push", "pull", "remote") else []
        capsys.readouterr()
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
        try:
            main(words)
        except SystemExit as ended:
            assert ended.code in (0, 2)
        shown = capsys.readouterr()
        text = re.sub(r"[^\n]*\r\x1b\[2?K", "", shown.out + shown.err)  # what a status line replaced
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
        return re.sub(r"[^\n]*━[^\n]*\n", "", text)  # bars of rich, which fit themselves into a terminal

    return run


def words_of(text):
    """Return the words of a screen; numbers, which differ between calls, are #."""
    return {re.sub(r"\d[\d.,]*", "#", word) for word in text.replace("\\\n", "\n").replace("…", "").split()}


def assert_fits(text, width, names):
    for line in text.splitlines():
        is_word = len(line.removesuffix("\\").split()) == 1
        assert cell_len(line) <= width or is_word or line.startswith(("done ", "result ")), line
    packed = "".join(text.split())
    assert [name for name in names if packed.count(name) != text.count(name)] == [], text


def names_in(root):
    """Return the ids, paths and artifacts that a command may print."""
    artifacts = [f"{path.parent.name}/{path.name}" for path in root.glob("[!.]*/*") if path.is_dir()]
    return [*history.runs(root), *artifacts, str(root)]


@pytest.mark.parametrize("command", make_parsers()[1])
def test_no_command_breaks_a_word(command, root, screen):
    assert command in CASES, f"add arguments of {command} to CASES"
    wide = screen(command, *CASES[command], width=2000)
    assert wide.strip()
    for width in (40, 80, 200):
        shown = screen(command, *CASES[command], width=width)
        if command not in DATA:
            assert_fits(shown, width, names_in(root))
        if command != "run":  # its id is another one each time
            assert words_of(shown) <= words_of(wide)


@pytest.mark.parametrize("command", make_parsers()[1])
def test_no_help_breaks_a_word(command, screen):
    wide = screen(command, "--help", width=2000)
    for width in (40, 80):
        shown = screen(command, "--help", width=width)
        assert_fits(shown, width, [])
        assert words_of(shown) == words_of(wide)


def test_the_list_of_commands_breaks_no_word(monkeypatch, capsys):
    for width in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))  # argparse does not ask for a terminal
        with pytest.raises(SystemExit):
            main(["--help"])
        assert_fits(capsys.readouterr().out, width, [])


def test_runs_take_two_lines_at_most_and_show_what_differs(screen, root):
    shown = screen("runs", width=80)
    head, *lines, note = shown.splitlines()
    assert head.split() == ["run", "state", "took", "accuracy", "kept"]
    starts = [number for number, line in enumerate(lines) if line.startswith("2026")]
    assert starts[1] - starts[0] <= 2 and len(lines) <= 2 * len(starts)
    assert "train.beta=0.00 seed=0" in shown and "0.123 → 0.457" in shown and "best" in shown
    assert "train.steps=7" not in shown and "store=" not in shown and note.startswith("2 overrides ")
    side_by_side = screen("runs", width=200).splitlines()
    assert "train.beta=0.00 seed=0" in next(line for line in side_by_side if line.startswith(FIRST))


def test_runs_in_a_pipe_name_all_overrides(root, shown):
    text = shown("runs", f"store={root}").out
    assert text.count("train.steps=7") >= 3 and text.count("store=") >= 3


@pytest.mark.parametrize("width", [40, 80, 200])
def test_points_of_a_sweep_show_their_accuracy_before_their_keys(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    stopped = Point(0, ["rollout.max_tokens=256", "train.beta=0.0"], "stopped early", "rung 1, after step 10")
    done = Point(1, ["rollout.max_tokens=257", "train.beta=0.1"], "finished")
    done.result = {"accuracy_sft": 0.125, "accuracy_grpo": 0.875, "gain": 0.75}
    show([stopped, done], console())
    shown = capsys.readouterr().out
    assert_fits(shown, width, ["rollout.max_tokens", "train.beta"])
    assert shown.index("after grpo") < shown.index("rollout.max_tokens") < shown.index("train.beta")
    assert shown.index("0.875") < shown.index("257") < shown.index("finished")


def test_show_has_percentages(screen):
    shown = screen("show", FIRST, width=80)
    assert re.search(r"Greedy accuracy +12.3 % +45.7 % +\+33.3 ± \d", shown)
    assert re.search(r"pass@8 +33.3 % +66.7 %", shown)
    assert not re.search(r"\d\.\d{5}", shown) and "fixed 341" in shown


def test_a_plan_names_a_cause_once(screen):
    shown = screen("plan", *TINY, "train.beta=0.5", width=80)
    reasons = dict(re.findall(r"^(\w+) +RUN +(.*?)(?: {2,}|$)", shown, re.MULTILINE))
    assert reasons["grpo"].startswith("train.beta ") and reasons["grpo"].endswith("→ 0.5")
    assert {reasons[stage] for stage in ("evaluate", "export", "report")} == {"grpo changed"}


def test_layouts_have_five_columns_and_more_from_120(screen):
    def columns(width):
        lines = screen("layouts", *CASES["layouts"], width=width).splitlines()
        return re.split(r" {2,}", next(line for line in lines if "fits" in line).strip())

    assert columns(80) == ["train", "generate", "fits", "memory", "time"]
    assert columns(40) == ["train", "fits", "time"]
    assert columns(120) == columns(200) and len(columns(120)) == 8  # and the ranks, which have no name


def test_doctor_ends_with_one_pip_command(screen):
    shown = screen("doctor", "engine=mindrlhf", f"engine.python={sys.executable}", width=80)
    command = re.sub(r"\\\n +", "", shown)
    assert shown.count("-m pip install") == 1 and "must be vllm" in shown
    assert re.search(
        rf"{re.escape(sys.executable)} -m pip install .*mindstudio-probe", command.splitlines()[-1]
    )


def test_probe_prints_a_table_and_a_verdict(screen, printed):
    shown = screen("probe", width=80)
    assert re.search(r"^demonstrated +1 +1 +right, shown", shown, re.MULTILINE)
    assert "the reward can be earned: demonstrated" in shown
    assert "CANNOT be earned" in screen("probe", "reward=boxed", width=80)
    assert printed("probe")["earnable"] is True


def test_a_real_terminal_shows_what_fits_into_it(root):
    def lines(width):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        command = [sys.executable, "-m", "pipeline.cli", "runs", f"store={root}"]
        process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower)
        os.close(follower)
        text = b""
        while True:
            try:
                text += (new := os.read(leader, 1 << 16))
            except OSError:  # Linux: the other end is closed
                break
            if not new:
                break
        assert process.wait() == 0
        os.close(leader)
        return re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).replace("\r", "").splitlines()

    for width in (40, 80):
        shown = lines(width)
        assert max(map(cell_len, shown)) <= width
        assert sum(FIRST in line for line in shown) == 1


@pytest.fixture
def drawn(monkeypatch, capsys):
    def draw(table, width):
        monkeypatch.setenv("COLUMNS", str(width))
        console().print(table)
        return capsys.readouterr().out.splitlines()

    return draw


def test_texts_and_notes_go_below_their_row_and_long_words_stay_whole(drawn):
    path = "/data/" + "x" * 50
    table = Table(["id", Column("why", "text")])
    table.add("a" * 30, f"changed because of {path} today")
    assert drawn(table, 40) == ["id", "a" * 30, "    changed because of", f"    {path}", "    today"]
    table = Table(["id", Column("note", "note")])
    table.add("b" * 30, "one two three four five six seven eight nine")
    assert drawn(table, 40) == ["id", "b" * 30, "    one two three four five six seven …"]
    assert drawn(table, 100)[1] == "b" * 30 + "  one two three four five six seven eight nine"


def test_a_table_without_room_becomes_a_block_per_row(drawn):
    table = Table(["id", "state", Column("count", "number")])
    table.add("c" * 38, "finished", "12")
    assert drawn(table, 40) == ["c" * 38, "  state  finished", "  count  12"]


def test_wide_characters_count_twice(drawn):
    table = Table(["名", "b"])
    table.add("中文", "x")
    table.add("a", "y")
    assert drawn(table, 80) == ["名    b", "中文  x", "a     y"]
    assert wrapped("中文 中文 中文", 9) == ["中文 中文", "中文"]


def test_a_table_with_borders_shows_texts_as_they_are(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table(["id", "why"])
    table.add("x", "[/usr/data] [red] :car:")
    console().print(table)
    assert "│ x  │ [/usr/data] [red] :car: │" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["a line", "two\nlines"])
def test_sentences_are_written_in_one_piece(monkeypatch, text):
    """Threads that print at the same time would come between the pieces."""
    pieces, stream = [], io.StringIO()
    monkeypatch.setattr(stream, "write", pieces.append)
    monkeypatch.setattr(sys, "stderr", stream)
    say(text, stderr=True)
    assert pieces == [text + "\n"]
