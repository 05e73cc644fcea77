"""Supervised training, by mindformers' stand-in and by our own trainer, in front of grpo: real msrun."""

import json

import pytest

from tests.e2e import outside
from tests.e2e.conftest import run, run_plain
from tests.e2e.outside import SFT, STEPS, artifact, result, rows, standin, weights_moved
from tests.processes import living, wait_until

ALPACA = [
    {"instruction": f"Add {number} and {number + 1}.", "input": "", "output": str(2 * number + 1)}
    for number in range(96)
]
MINDRLHF = [*outside.MINDRLHF, *SFT]
ARITH = [*MINDRLHF, "mindformers.batch_size=8"]
OF_ARITH = 14  # updates of 8 rows, two epochs of 7; a row packs several examples


@pytest.fixture
def alpaca(tmp_path):
    """Overrides for a file of instructions as what sft learns from."""
    file = tmp_path / "alpaca.json"
    file.write_text(json.dumps(ALPACA))
    return [f"sft_data.path={file}", "tokenize.sft_length=128", "tokenize.system_prompt=''"]


def test_a_killed_run_resumes(tmp_path, alpaca):
    store, overrides = tmp_path / "store", [*MINDRLHF, *alpaca]

    def saved_step_6():
        files = store.glob(".work/sft-*/**/meta.json")
        return [json.loads(file.read_text())["last_epoch"] for file in files] == [6, 6]

    first = outside.begin(store, *overrides, standin("hang@7", "mindformers"))
    outside.wait_for_workers(first, store, "sft", f"step:[{1:5d}/{6:5d}], loss: ", 2)
    wait_until(saved_step_6, 240, first)  # workers end with their orchestrator
    first.kill()
    first.communicate()
    run_plain(store, *overrides, task="Sft", code=0)
    assert not living(store)
    assert result(store, "sft")["resumed_from"] == [6, 1]
    output = rows(store, "sft")
    assert [row["step"] for row in output] == list(range(1, STEPS + 1))
    assert output[4] | {"time_s": 0} == {
        "step": 5, "time_s": 0, "loss": 1.2, "step_s": 0.05, "tokens_per_s": 16 * 128 / 0.05,
        "lr": pytest.approx(5e-6), "grad_norm": 5.5, "overflow": 0.0,
    }  # fmt: skip
    assert weights_moved(store, "fetch", "sft") == {float(STEPS)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "layout"),
    [("hf_safetensors", "dp1_mp2_pp1"), ("ms_safetensors", "dp1_mp2_pp1"), ("ckpt", "dp2_mp1_pp2"),
     ("ckpt", "dp1_mp2_pp2")],
)  # fmt: skip
def test_every_form_that_mindrlhf_loads_comes_from_it(tmp_path, form, layout):
    store = tmp_path / "store"
    generator = f"engine.use_vllm={0 if form == 'ckpt' else 1}"
    run_plain(store, *ARITH, f"engine.load_ckpt_format={form}", f"layout={layout}", generator, code=0)
    last = 3 if layout.endswith("pp2") else 1  # the stand-in adds the rank to the loss that it logs
    steps = range(1, OF_ARITH + 1)
    assert [row["loss"] for row in rows(store, "sft")] == pytest.approx(
        [1 / s + last for s in steps], abs=1e-3
    )
    assert weights_moved(store) == {float(OF_ARITH + STEPS)}


@pytest.mark.long
def test_the_embedded_trainer_starts_from_it(tmp_path, alpaca):
    store = tmp_path / "store"
    done = run(store, *SFT, *alpaca)
    assert done.started.index("sft") < done.started.index("split") < done.started.index("grpo")
    assert weights_moved(store, "fetch", "sft") == {float(STEPS)}
    # far nearer to sft's result than to the fetched weights: that is where grpo began
    assert max(map(abs, weights_moved(store, "sft", "export"))) < STEPS / 4
    assert {"accuracy_sft", "accuracy_grpo"} <= done.result.keys()


@pytest.mark.long
def test_the_embedded_trainer_learns_from_instructions_itself(tmp_path, alpaca):
    store = tmp_path / "store"
    run(store, *alpaca)
    assert [row["step"] for row in rows(store, "sft")] == [1, 2, 3, 4]
    card = json.loads((artifact(store, "tokenize") / "result.json").read_text())["files"]["sft"]
    assert card["records"] == len(ALPACA)
    assert "Add 0 and 1." in card["samples"][0]["text"]
