"""engine=mindspeed_rl in plans: its row of the table, its files, what a run needs, what an identity holds."""

import shutil
from pathlib import Path

from pipeline import engines
from pipeline.config.load import load
from pipeline.plan.graph import plan
from stages.base.files import file_digest

STANDIN = Path(__file__).parents[1] / "data" / "mindspeed_rl_standin"
HEAD = f"engine.mindspeed_rl_home={STANDIN / 'head'}"
BASE = (
    "engine=mindspeed_rl",
    "layout=dp2_mp2_pp2",
    "dataset=gsm8k",
    f"dataset.path={STANDIN.parent / 'gsm8k'}",
    "model.max_position_embeddings=8192",
)


def planned(*overrides):
    return plan(load([*BASE, *overrides]), file_digest)


def test_a_changed_template_reruns_tokenize(tmp_path):
    home = Path(shutil.copytree(STANDIN / "head", tmp_path / "home"))
    before = planned(f"engine.mindspeed_rl_home={home}")
    assert before.spec("convert").key == planned(HEAD).spec("convert").key  # moved, not changed
    file = home / "configs/model/templates.json"
    file.write_text(file.read_text().replace("Think first", "Think hard"))
    after = planned(f"engine.mindspeed_rl_home={home}")
    assert before.spec("tokenize").key != after.spec("tokenize").key
    assert before.spec("convert").key == after.spec("convert").key


def test_a_run_needs_checkout_converter_and_machines(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)  # of Slurm

    def missing(*overrides):
        config = load([*BASE, *overrides])
        return [problem.path for problem in engines.needs(config)]

    llm = f"engine.mindspeed_llm_home={STANDIN / 'llm'}"
    assert missing() == ["engine.mindspeed_rl_home", "engine.mindspeed_llm_home"]
    assert missing(HEAD, llm) == []
    assert missing(f"engine.mindspeed_rl_home={STANDIN / 'window'}") == []
    apart = ["engine.use_integrated_worker=false", "train.prompts_per_step=64"]
    assert missing(HEAD, llm, *apart, "launcher.cards_per_node=8") == ["cards"]
    inside = ["launcher=slurm", "engine.container=[docker,exec,rl]"]
    assert missing(HEAD, llm, *inside) == ["engine.container"]  # nothing would run in it
