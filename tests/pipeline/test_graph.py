from dataclasses import replace

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.plan.graph import plan
from stages.base.files import file_digest
from stages.catalog import GRPO

CHAIN = ["fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split", "sft", "grpo"]
CHAIN += ["evaluate", "export", "report"]


def planned(*overrides):
    return plan(load(overrides), file_digest)


def changed(*overrides, base=()):
    before = {spec.name: spec.key.fingerprint for spec in planned(*base).specs}
    after = {spec.name: spec.key.fingerprint for spec in planned(*base, *overrides).specs}
    return {name for name in after if before.get(name) != after[name]}


def test_a_changed_byte_of_a_dataset_reruns_tokenize_but_not_convert(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\n')
    base = ("dataset=gsm8k", f"dataset.path={tmp_path}", "model.tokenizer_path=/nowhere")
    before = {spec.name: spec.key.fingerprint for spec in planned(*base).specs}
    (tmp_path / "train.jsonl").write_text('{"question": "1+2?", "answer": "#### 2"}\n')
    after = {spec.name: spec.key.fingerprint for spec in planned(*base).specs}
    different = {name for name in after if before[name] != after[name]}
    assert different == set(CHAIN) - {"fetch", "convert", "strategy", "split"}


def test_the_same_files_elsewhere_are_the_same_inputs(tmp_path):
    identities = []
    for path in ("a", "b"):
        (tmp_path / path).mkdir()
        for name in ("train", "test"):
            (tmp_path / path / f"{name}.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\n')
        specs = planned("dataset=gsm8k", f"dataset.path={tmp_path / path}").specs
        identities.append([spec.key.fingerprint for spec in specs])
    assert identities[0] == identities[1]


def test_the_files_of_a_users_reward_are_fingerprinted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, sibling = tmp_path / "mine.py", tmp_path / "beside.py"
    module.write_text("import beside\n\ndef f(completions, solutions):\n    return [0.0]\n")
    sibling.write_text("A = 1\n")
    overrides = ("reward.functions=[mine:f]", "reward.weights=[1.0]")
    before = {spec.name: spec.key for spec in planned(*overrides).specs}
    for file, text in ((sibling, "A = 2\n"), (module, "import beside\nf = beside.A\n")):
        file.write_text(text)
        after = {spec.name: spec.key for spec in planned(*overrides).specs}
        assert {name for name in after if before[name] != after[name]} == {
            "grpo", "evaluate", "export", "report"
        }  # fmt: skip
        before = after
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for file in (module, sibling):
        file.rename(elsewhere / file.name)
    assert {spec.name: spec.key for spec in planned(*overrides).specs} == before
    assert planned("sft.enabled=false").spec("grpo").external == {}
    with pytest.raises(ConfigError, match="module nosuch not found"):
        planned("reward.functions=[nosuch:f]", "reward.weights=[1.0]")


def test_examples_for_sft_rerun_tokenize_and_everything_downstream(tmp_path):
    file = tmp_path / "own.json"
    file.write_text("[1]")
    overrides = f"sft_data.path={file}"
    assert changed(overrides) == {"tokenize", "sft", "grpo", "evaluate", "report", "export"}
    assert changed("sft_data.kind=conversations") == set()
    before = planned(overrides).spec("tokenize")
    assert list(before.external) == [str(file)]
    file.write_text("[2]")
    assert planned(overrides).spec("tokenize").key != before.key
    moved = tmp_path / "moved"
    moved.mkdir()
    same = file.rename(moved / "own.json")
    file.write_text("[2]")
    assert planned(overrides).spec("tokenize").key == planned(f"sft_data.path={same}").spec("tokenize").key


def test_a_change_of_the_local_trainer_reruns_no_outside_program(monkeypatch):
    runs = {"mindrlhf": ("engine=mindrlhf", "layout=dp1_mp2_pp1"), "local": ("layout=dp1_mp2_pp1",)}
    before = {name: {spec.name: spec.key for spec in planned(*run).specs} for name, run in runs.items()}
    monkeypatch.setattr("stages.engines.local.GRPO", replace(GRPO, version=1000))
    after = {name: {spec.name: spec.key for spec in planned(*run).specs} for name, run in runs.items()}
    assert after["mindrlhf"] == before["mindrlhf"]
    assert after["local"]["grpo"] != before["local"]["grpo"]
