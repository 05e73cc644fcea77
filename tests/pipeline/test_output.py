"""Standard streams: no control characters reach a terminal, and an unwritable stream gives one message."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.store import history

CONTROL = [chr(code) for code in (*range(0x09), 0x0B, 0x0C, 0x0D, *range(0x0E, 0x20), *range(0x7F, 0xA0))]
BIDI = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))]
HOSTILE = "".join(CONTROL + BIDI)
ROOT = Path(__file__).parents[2]


def run(store, *arguments):
    """Run a command in its own process; return its exit code and stderr."""
    cache = str(store.parent / "cache")
    environment = {**os.environ, "GRPOFLOW_STORE": str(store), "XDG_CACHE_HOME": cache}
    done = subprocess.run(arguments, capture_output=True, timeout=300, cwd=ROOT, env=environment)
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stderr.decode()


@pytest.fixture
def root(tmp_path):
    """A store of two runs whose overrides, names, results and logs contain every control character."""
    artifacts = {"grpo": f"grpo/{'a' * 16}"}
    for number, run_id in enumerate(("20260101-000000-aaaa", "20260101-000001-bbbb")):
        config = load([]).plain() | {"train": {"name": f"{HOSTILE}{number}"}}
        history.record(
            tmp_path, run_id, "started", overrides=[f"x={HOSTILE}"], config=config, artifacts=artifacts,
            target=f"--only {HOSTILE}",
        )  # fmt: skip
        history.record(tmp_path, run_id, "failed", stage="grpo", message=f"m{HOSTILE}")
        history.record(tmp_path, run_id, "named", name=f"n{HOSTILE}{number}")
    log = tmp_path / ".logs" / f"grpo-{'a' * 16}" / "stage.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(f"line {HOSTILE}\nerror: {HOSTILE}\n".encode() + b"\xff\xfe\n")
    return tmp_path


def is_plain(text):
    assert not [f"U+{ord(letter):04X}" for letter in sorted(set(HOSTILE) & set(text))]
    return True


COMMANDS = [
    "runs", "show 20260101-000000", "diff 20260101-000000 20260101-000001", "logs last grpo", "report last",
    "watch last --once", "show HOSTILE", "plan train.beta=HOSTILE", "plan HOSTILE=1", "plan --only HOSTILE",
    "HOSTILE", "run --HOSTILE", "gc --keep HOSTILE", "diagnose HOSTILE", "config --explain HOSTILE",
    "sweep --plan train.beta=0.1,HOSTILE", "weights convert HOSTILE OUT", "doctor engine.python='HOSTILE'",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_no_control_character_reaches_the_terminal(command, root, capsys):
    if command in ("HOSTILE", "run --HOSTILE", "gc --keep HOSTILE"):
        with pytest.raises(SystemExit):
            main([word.replace("HOSTILE", HOSTILE) for word in command.split()])
    else:
        main([*(word.replace("HOSTILE", HOSTILE) for word in command.split()), f"store={root}"])
    captured = capsys.readouterr()
    assert is_plain(captured.out) and is_plain(captured.err) and (captured.out or captured.err)


@pytest.mark.parametrize(
    "command", ["runs --json", "show last --json", "diff 20260101-000000 20260101-000001 --json"]
)
def test_json_has_exact_values_without_control_characters(command, root, shown):
    captured = shown(*command.split(), f"store={root}").out
    assert is_plain(captured)
    assert any(HOSTILE in text for text in texts(json.loads(captured)))


def texts(value):
    if isinstance(value, (dict, list)):
        for item in [*value, *(value.values() if isinstance(value, dict) else ())]:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("command", ["config", "runs", "--help"])
@pytest.mark.parametrize("target", [">&-", ">/dev/full"])
def test_an_unwritable_stdout_gives_a_single_message(command, target, root):
    code, text = run(root, "sh", "-c", f'"$0" -m pipeline.cli {command} {target}', sys.executable)
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert code == 1 and len(errors) == 1 and errors[0].startswith("error: stdout: ")


LUIGI = [str(Path(sys.executable).with_name("luigi")), "--module", "pipeline"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RunGRPO", "--overrides", "it's"], "--overrides=it's: "),
        (["RunGRPO", "--overrides", "[1]"], "--overrides="),
        (["Split", "--overrides", "train=null"], "overrides=train=null: "),
        (["RunGRPO", "--overrides", "seed=\x1b[31m"], "seed="),
        (["RunGRPO", "--only", "nosuch"], "--only=nosuch: "),
    ],
)
def test_luigi_s_command_line_refuses_with_a_single_message(arguments, message, tmp_path):
    code, text = run(tmp_path / "store", *LUIGI, *arguments)
    assert code == 2 and is_plain(text)
    assert text.startswith(f"error: {message}") and text.count("error: ") == 1
    assert not (tmp_path / "store" / "runs").exists()
