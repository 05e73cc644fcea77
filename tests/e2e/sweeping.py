"""Sweeps of several points with shared stages: complete runs, and runs that are killed and repeated."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e import crash
from tests.e2e.conftest import CHEAP, Finished, damage, finish
from tests.stages.fetch.settings import write_lines

CHEAPEST = [
    *CHEAP, "layout=dp1_mp1_pp1", "train.steps=2", "train.checkpoint_every=2", "sft.check_every=200",
    "sft.steps=400",  # about half of a point's time is spent in shared stages
]  # fmt: skip
SEEDS, LEARNING_RATES = (0, 1, 2), (0.0001, 0.0002, 0.0003, 0.0004)
POINTS = [[f"seed={seed}", f"train.learning_rate={rate}"] for seed in SEEDS for rate in LEARNING_RATES]
SWEPT = [f"seed={','.join(map(str, SEEDS))}", f"train.learning_rate={','.join(map(str, LEARNING_RATES))}"]
EXPECTED = Counter(
    {"strategy": 1}
    | dict.fromkeys(("fetch", "fetch_dataset", "convert", "tokenize", "split", "sft"), len(SEEDS))
    | dict.fromkeys(("grpo", "evaluate", "export", "report"), len(POINTS))
)
"""How often each stage must run: points of the same seed share the stages before grpo, all share strategy."""


def falling_behind(directory: Path) -> list[str]:
    """Return the overrides of a sweep whose second training falls behind and is stopped early.

    One answer is right for all questions, so few steps teach it; weight decay destroys one of the models.
    """
    data = directory / "data"
    data.mkdir()
    for split, rows in (("train", 96), ("test", 32)):
        questions = [f"Say seven, please ({number}, {number * 7 % 10})." for number in range(rows)]
        write_lines(data / f"{split}.jsonl", *({"question": each, "answer": "#### 7"} for each in questions))
    return [
        *(word for word in CHEAP if not word.startswith(("dataset.", "sft."))),
        "dataset=gsm8k", f"dataset.path={data}", "layout=dp1_mp1_pp1", "sft.steps=60", "sft.batch_size=16",
        "sft.check_every=20", "sft.check_prompts=16", "sweep.stop=asha", "sweep.reduction_factor=2",
        "train.validate_every=1", "train.validation_prompts=16", "train.weight_decay=3",
        "train.learning_rate=0.000001,0.3",
    ]  # fmt: skip


def stopped_after(store: Path, point: Mapping[str, Any]) -> int:
    """Return the step after which a training was stopped early; check that its checkpoint is there."""
    assert point["state"] == "stopped early"
    assert point["rung"]["accuracy"] < point["rung"]["needed"] == 1
    work = store / ".work" / point["artifacts"]["grpo"].replace("/", "-")
    log = (store / ".logs" / work.name / "stage.log").read_text()
    saved = int(re.findall(r"stopped by SIGTERM after step (\d), with a checkpoint", log)[-1])
    assert saved >= point["rung"]["step"]
    assert (work / f"checkpoints/step_{saved:06d}/state.json").is_file()
    return saved


def command(store: Path, *overrides: str, cards: int | None = None) -> list[str]:
    """Return the command line of a sweep."""
    options = [] if cards is None else ["--cards", str(cards)]
    return [sys.executable, "-m", "pipeline", "-m", *options, f"store={store}", *overrides]


def run(store: Path, *overrides: str, cards: int | None = None) -> Finished:
    """Run a sweep."""
    return finish(command(store, *overrides, cards=cards), store.parent, timeout=1200, code=0)


def points(store: Path) -> list[dict[str, Any]]:
    """Return the points in the record of the only sweep of a store."""
    (file,) = store.glob("sweeps/*/sweep.json")
    return list(json.loads(file.read_text())["points"])


def artifacts(store: Path) -> dict[str, tuple[int, float]]:
    """Return inode and time of the commit of each artifact, by STAGE/DIGITS."""
    files = store.glob("[!.]*/[!.]*/manifest.json")
    return {
        str(file.parent.relative_to(store)): (os.stat(file).st_ino, os.stat(file).st_mtime) for file in files
    }


def count(store: Path) -> Counter[str]:
    """Return the number of artifacts of each stage."""
    return Counter(Path(name).parent.name for name in artifacts(store))


def busiest(store: Path) -> int:
    """Return the largest number of cards in use at the same time, according to the manifests."""
    moments = []
    for file in store.glob("[!.]*/*/manifest.json"):
        manifest = json.loads(file.read_text())
        if manifest["stage"] in ("sft", "grpo", "evaluate"):
            moments += [(manifest["started"], 1), (manifest["ended"], -1)]
    return max(itertools.accumulate(change for _, change in sorted(moments)))


def killed_trial(
    directory: Path, duration_s: float, kills: int, chance: random.Random, cards: int
) -> list[int]:
    """Kill a sweep, which takes `duration_s` undisturbed, at random moments; then let it end.

    Check after each kill that nothing is damaged and no finished work was repeated, and at the end that every
    point is finished. Return the number of finished artifacts at each kill.
    """
    store, errors = directory / "store", directory / "stderr"
    line = command(store, *CHEAPEST, *SWEPT, cards=cards)
    result: list[int] = []
    before: dict[str, tuple[int, float]] = {}
    for _ in range(kills):
        with errors.open("w") as stderr:
            process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=stderr, text=True)
        time.sleep(chance.uniform(0.02, 1.0) * duration_s / kills)
        assert process.poll() is None, errors.read_text()
        crash.kill_everything(process, store)
        assert damage(store) == []
        before = _nothing_repeated(store, before)
        result.append(len(before))
    done = run(store, *CHEAPEST, *SWEPT, cards=cards)
    assert len(done.started) == EXPECTED.total() - result[-1]
    _nothing_repeated(store, before)
    assert {point["state"] for point in points(store)} == {"finished"}
    assert len(points(store)) == len(POINTS)
    assert count(store) == EXPECTED
    assert damage(store) == []
    return result


def _nothing_repeated(store: Path, before: dict[str, tuple[int, float]]) -> dict[str, tuple[int, float]]:
    """Return all artifacts; check that those in `before` were not committed again."""
    now = artifacts(store)
    assert {name: now.get(name) for name in before} == before
    return now


def separate(directory: Path) -> float:
    """Return the seconds of the points as separate runs, one after the other, each with an empty store."""
    seconds = 0.0
    for number, overrides in enumerate(POINTS):
        store = directory / f"alone{number}" / "store"
        store.parent.mkdir(parents=True)
        line = [sys.executable, "-m", "pipeline", f"store={store}", *CHEAPEST, *overrides]
        began = time.monotonic()
        finish(line, store.parent, code=0)
        seconds += time.monotonic() - began
        shutil.rmtree(store.parent)
    return seconds


def shared_sweep(directory: Path, cards: int) -> float:
    """Return the seconds of one sweep with an empty store; each shared stage must run once."""
    store = directory / "whole" / "store"
    store.parent.mkdir(parents=True)
    began = time.monotonic()
    done = run(store, *CHEAPEST, *SWEPT, cards=cards)
    seconds = time.monotonic() - began
    assert count(store) == Counter(done.started) == EXPECTED
    assert busiest(store) == cards  # never more than the machine has, and all of them at some time
    shutil.rmtree(store.parent)
    return seconds
