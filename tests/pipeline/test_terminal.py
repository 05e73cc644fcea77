import json
import os
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

from pipeline.cli import COMMANDS, main, make_parser
from pipeline.config.load import load
from pipeline.fingerprint import file_digest
from pipeline.plan.graph import plan
from pipeline.rehearsal import report
from pipeline.run import summary
from pipeline.store import history
from pipeline.store.store import Store
from pipeline.sweep import points
from pipeline.terminal import Table, console
from stages.engines.rehearsal import Proof
from tests.pipeline.artifacts import commit_spec

LONG = "reward.functions=[my_rewards_module:length_penalised_accuracy]"
PRINTED = {
    "plan": ["fetch_dataset", "RUN", "never run"],
    "plan train.beta=0.5": ["fetch_dataset", "CACHED", "train.beta"],
    "layouts model=qwen2_5_7b cards=8": ["dp1_mp4_pp1_cp2", "sends a step"],
    "config --origin": ["rollout.num_generations", "conf/model/qwen2_5.yaml"],
    "config --explain layout": ["layout.reference", "meaning"],
    "runs": ["20261122-080000-aaaa", "20261122-090000-bbbb", "finished", "0.250 → 0.500"],
    "diff 20261122-08 20261122-09": ["train.learning_rate", "0.001", "0.002"],
    "watch last --once": ["fetch_dataset", "cached"],
    "remote status": ["fetch_dataset", "complete"],
    "sweep --plan seed=0,1": ["fetch_dataset", "points"],
}
"""Command -> words of its table that stay whole in 40 columns."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A store that holds the default graph but for the rows, which plan reads, and two runs."""
    root = tmp_path_factory.mktemp("store")
    specs = plan(load([f"store={root}"]), file_digest).specs
    for spec in specs:
        if spec.name != "tokenize":
            commit_spec(Store(root), spec, {"file": spec.name}, started=100.0, ended=107.5)
    artifacts = {spec.name: str(spec.key) for spec in specs}
    for number, run in enumerate(("20261122-080000-aaaa", "20261122-090000-bbbb"), 1):
        told = {"config": {"train": {"learning_rate": number / 1000}}, "artifacts": artifacts}
        history.record(root, run, "started", overrides=[LONG], **told)
        history.record(root, run, "finished", result={"accuracy_sft": 0.25, "accuracy_grpo": 0.5})
    return root


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 40 columns that knows colours, which are not wanted."""
    told = {"COLUMNS": "40", "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("command", PRINTED)
@pytest.mark.usefixtures("narrow")
def test_a_command_s_table_is_whole_in_40_columns_and_has_no_style(command, root, tmp_path, capsys):
    store = tmp_path if command == "plan" else root
    place = [f"remote={tmp_path.as_uri()}"] if command.startswith("remote") else []
    assert main([*command.split(), f"store={store}", *place]) in (0, 10)
    read = capsys.readouterr().out
    _is_complete(read, PRINTED[command])
    if command == "runs":
        assert "".join(LONG.split()) in "".join(read.split()), "folded, nothing of it lost"


@pytest.mark.usefixtures("narrow")
def test_tables_at_the_end_of_a_run_a_sweep_and_a_rehearsal_too(root, capsys):
    planned = plan(load([f"store={root}"]), file_digest)
    evaluated = root / str(planned.spec("evaluate").key) / "result.json"
    was = evaluated.read_bytes()
    accuracies = {"prompts": 16, "accuracy_sft": 0.25, "accuracy_grpo": 0.5, "gain": 0.25}
    evaluated.write_text(json.dumps(accuracies), encoding="utf-8")
    states = {spec.name: "remote" if spec.name == "tokenize" else "done" for spec in planned.specs}
    elsewhere = {"tokenize": Store(root).manifest(planned.spec("fetch").key)}
    summary.show(planned, Store(root), states, console(), elsewhere)
    evaluated.write_bytes(was)
    points.show([points.Point(n, [f"seed={n}", LONG + str(n)]) for n in range(2)], console())
    report.show([Proof("weights and their shapes are read", "unproven", "no accelerator on this machine")])
    words = [str(planned.spec("fetch_dataset").key), "+0.250", "pending", "unproven", "accelerator"]
    _is_complete(capsys.readouterr().out, words)


def _is_complete(read, words):
    assert "\x1b" not in read and "…" not in read
    assert [word for word in words if word not in read] == []
    rows = [line for line in read.splitlines() if line[:1] in "┃│"]
    assert max(map(cell_len, rows), default=40) <= 40


def test_with_room_a_table_is_a_table_and_cells_fold(capsys):
    table = Table("stage", "why")
    table.add_row("grpo", "x" * 300)
    console().print(table)
    read = capsys.readouterr().out
    assert "┏" in read and read.count("x") == 300
    assert {cell_len(line) for line in read.splitlines()} == {160}


@pytest.mark.parametrize("columns", ["", "0", "-3", "wide"])
def test_columns_that_are_no_number_mean_nothing(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert console().width == 160


def test_styles_stay_where_colours_are_wanted(monkeypatch, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console().print(Table("stage"), Text("bold", style="bold"))
    assert "\x1b[1m" in capsys.readouterr().out


JSON = ("verify", "verify --deep", "gc", "remote status", "runs", "show last", "diff last last", "watch",
        "plan", "layouts model=qwen2_5_7b cards=8", "config --origin",
        "config --explain train.beta")  # fmt: skip


@pytest.mark.parametrize("command", JSON)
def test_a_table_is_there_for_programs_too(command, root, tmp_path, capsys):
    place = [f"remote={tmp_path.as_uri()}"] if command.startswith("remote") else []
    assert main([*command.split(), "--json", f"store={root}", *place]) in (0, 10)
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", ["rehearse", "doctor", "diagnose", *(one.split()[0] for one in JSON)])
def test_help_names_json(command, capsys):
    with pytest.raises(SystemExit):
        make_parser([COMMANDS[command]]).parse_args([command, "--help"])
    assert "--json" in capsys.readouterr().out


def test_damage_and_garbage_are_named_for_programs(tmp_path, capsys):
    store = Store(tmp_path)
    for number in range(2):
        config = load([f"store={tmp_path}", f"seed={number}"])
        spec = plan(config, file_digest).spec("fetch_dataset")
        commit_spec(store, spec, {"file": "x"})
        started = {"overrides": [], "config": {}, "artifacts": {"fetch_dataset": str(spec.key)}}
        history.record(tmp_path, f"run{number}", "started", **started)
    paths = sorted(str(path) for path in tmp_path.glob("fetch_dataset/*"))
    assert len(paths) == 2

    def told(*words, code=0):
        assert main([*words, "--json", f"store={tmp_path}"]) == code
        return dict(json.loads(capsys.readouterr().out))

    (Path(paths[0]) / "file").write_text("longer")
    assert [finding["path"] for finding in told("verify", code=1)["damaged"]] == [paths[0]]
    repaired = told("verify", "--repair")["damaged"]
    assert Path(repaired[0]["moved_to"]).is_dir() and told("verify")["damaged"] == []
    garbage = told("gc", "--keep", "0", "--delete")["garbage"]
    assert paths[1] in [item["path"] for item in garbage] and not os.path.exists(paths[1])
