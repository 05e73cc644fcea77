import io
import shutil
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pipeline.config.load import load
from pipeline.fingerprint import file_digest
from pipeline.plan.explain import as_json, explain, show
from pipeline.plan.graph import plan
from pipeline.store.store import Store
from tests.pipeline.artifacts import commit_spec


def planned(*overrides):
    return plan(load(overrides), file_digest)


def commit(spec, store):
    commit_spec(store, spec, {"file": spec.name}, started=100.0, ended=107.5)


def rows(plan, store):
    return {row.stage: row for row in explain(plan, store)}


def test_an_empty_store_has_never_run(tmp_path):
    found = rows(planned(), Store(tmp_path))
    assert {row.state for row in found.values()} == {"RUN"}
    assert {row.reason for row in found.values()} == {"never run"}
    assert "--worker_num=2" in found["grpo"].command
    assert found["fetch"].command[1:4] == ["-m", "stages", "fetch"]


def test_reasons_name_the_key_that_changed(tmp_path):
    store = Store(tmp_path)
    for spec in planned().specs:
        commit(spec, store)
    assert {row.state for row in rows(planned(), store).values()} == {"CACHED"}
    found = rows(planned("train.beta=0.5"), store)
    assert found["sft"].state == "CACHED"
    old = load([]).train.beta
    assert found["grpo"].reason == f"train.beta {old} → 0.5"
    assert found["grpo"].last_duration_s == 7.5
    assert found["evaluate"].reason.startswith("input changed: ")


def test_the_nearest_of_several_earlier_artifacts_explains(tmp_path):
    store = Store(tmp_path)
    for overrides in (["train.beta=0.1", "train.steps=7"], ["train.beta=0.2"]):
        for spec in planned(*overrides).specs:
            commit(spec, store)
    assert rows(planned("train.beta=0.3"), store)["grpo"].reason == "train.beta 0.2 → 0.3"


def test_a_new_code_version_is_a_reason(tmp_path):
    store, current = Store(tmp_path), planned()
    fetch = current.spec("fetch")
    commit(replace(fetch, version=0, key=replace(fetch.key, fingerprint="00" * 32)), store)
    assert rows(current, store)["fetch"].reason == "code version 0 → 1"


def test_damage_is_a_reason(tmp_path):
    store, current = Store(tmp_path), planned()
    for spec in current.specs:
        commit(spec, store)
    (store.path(current.spec("split").key) / "file").unlink()
    found = rows(current, store)
    assert found["split"].reason == "output missing: file"
    assert [name for name, row in found.items() if row.state == "RUN"] == ["split"]


def test_json_lists_skipped_stages_with_the_reason(tmp_path):
    current = planned("sft.enabled=false")
    values = as_json(current, explain(current, Store(tmp_path)))
    sft = next(row for row in values["stages"] if row["stage"] == "sft")
    assert sft["state"] == "SKIPPED"
    assert "sft.enabled=false" in sft["reason"]
    assert (values["engine"], values["layout"], values["cards"]) == ("local", "dp1_mp2_pp1", 2)


def test_what_the_machine_lacks_blocks_and_says_so(tmp_path):
    found = explain(planned(), Store(tmp_path), ["mindspore: not installed; pip install mindspore"])
    assert {row.state for row in found} == {"BLOCKED"}
    assert {row.reason for row in found} == {"mindspore: not installed; pip install mindspore"}


def test_a_full_disk_blocks_a_stage_and_what_follows(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    needed = planned().spec("split").bytes_written
    assert needed is not None and needed >= planned().config.model.weight_bytes
    store = Store(tmp_path)
    commit(planned().spec("fetch"), store)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed - 1))
    found = rows(planned(), store)
    assert found["tokenize"].state == "RUN"
    assert found["split"].state == "BLOCKED"
    assert "free space, or choose another store" in found["split"].reason
    assert found["sft"].reason == "input blocked: split"


def test_a_duration_is_of_a_model_of_this_size(tmp_path):
    store = Store(tmp_path)
    for spec in planned().specs:
        commit(spec, store)
    found = rows(planned("model.num_hidden_layers=3", "seed=1"), store)
    known = {name for name, row in found.items() if row.last_duration_s is not None}
    assert known == {"fetch_dataset"} and found["grpo"].reason.startswith("model.num_hidden_layers")
    assert rows(planned("seed=1"), store)["report"].last_duration_s == 7.5


def test_on_a_narrow_terminal_no_word_of_a_stage_is_cut(tmp_path):
    current = planned("sft.enabled=false")
    out = Console(file=io.StringIO(), width=40, force_terminal=True, no_color=True)
    show(current, explain(current, Store(tmp_path)), out)
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()
    assert max(cell_len(Text.from_ansi(line).plain) for line in lines) <= 40
    words = {word for line in lines for word in Text.from_ansi(line).plain.split()}
    assert words >= {"fetch_dataset", "RUN", "sft.enabled=false:"}
