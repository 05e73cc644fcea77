"""Keys that change no artifact must be the same in all points: artifacts are shared, one value would win."""

import json

import pytest

from pipeline.cli import main
from pipeline.sweep.build import Sweep

SHARED = [
    ("store=a,b", "store"),
    ("launcher.timeout_s=100,200", "launcher.timeout_s"),
    ("launcher.grace_s=1,2", "launcher.grace_s"),
    ("launcher.master_port=5000,5001", "launcher.master_port"),
    ("fetch.endpoint=http://a,http://b", "fetch.endpoint"),
    ("fetch.cache_dir=/x,/y", "fetch.cache_dir"),
    ("remote.push=on,off", "remote.push"),
    ("remote.timeout_s=1,2", "remote.timeout_s"),
    ("train.loggers=[],[wandb]", "train.loggers"),
    ("reward.max_failures=1,2", "reward.max_failures"),
]


def nothing_runs(*_):
    raise AssertionError("a stage was started")


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Sweep, "_build", nothing_runs)
    return tmp_path


@pytest.mark.parametrize(("override", "key"), SHARED)
@pytest.mark.parametrize("options", [[], ["--plan"]], ids=["run", "plan"])
def test_keys_outside_fingerprints_cannot_be_swept(directory, capsys, override, key, options):
    assert main(["sweep", *options, override]) == 2
    message = capsys.readouterr().err
    assert f"error: {key}" in message and "one sweep for each value" in message
    assert not list(directory.glob("*/sweeps")) and not list(directory.glob("*/runs.jsonl"))


def test_choices_with_different_stores_are_refused(directory, capsys):
    (directory / "own" / "experiment").mkdir(parents=True)
    for name in ("one", "two"):
        text = f"# @package _global_\nstore: {name}\nseed: {len(name)}\n"
        (directory / "own" / "experiment" / f"{name}.yaml").write_text(text)
    assert main(["sweep", "--plan", "--config-dir", "own", "experiment=one,two"]) == 2
    assert "error: store" in capsys.readouterr().err


def test_paths_of_different_files_can_be_swept(directory, capsys):
    for name in ("one", "two"):
        (directory / name).mkdir()
        for split in ("train", "test"):
            rows = [{"question": f"{name} {n} + 1 =", "answer": f"#### {n + 1}"} for n in range(4)]
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            (directory / name / f"{split}.jsonl").write_text(text)
    swept = f"dataset.path={directory / 'one'},{directory / 'two'}"
    assert main(["sweep", "--plan", "--json", "dataset=gsm8k", swept, "--until", "fetch_dataset"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len({line["artifacts"]["fetch_dataset"] for line in lines}) == 2
