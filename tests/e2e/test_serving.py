"""What leaves the store loads elsewhere and answers as evaluate saw it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from stages.grpo.checkpoint_files import digest

QUESTION = "Tom has 3 and 8 cards. How many in all?"


def typed(*arguments):
    line = [sys.executable, "-m", "pipeline.cli", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=180)


def test_an_exported_model_answers_as_evaluate_saw_it(copy):
    pytest.importorskip("transformers")
    done = typed("serve-check", "last", f"store={copy}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("prompt  ") == 3
    equal, total = re.search(r"(\d+) of (\d+) answers equal", done.stdout).groups()
    assert equal == total != "0"


def test_a_directory_of_any_origin_answers_given_prompts(copy, tmp_path):
    pytest.importorskip("transformers")
    out = tmp_path / "out"
    assert typed("weights", "export", "last", str(out), f"store={copy}").stdout == f"{out}\n"
    assert (out / "config.json").exists() and not (out / "manifest.json").exists()
    done = typed("serve-check", str(out), "--prompt", QUESTION, "--prompt", "2 + 2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"prompt  {QUESTION}\n") and "of 2 answers" in done.stdout
    (out / "model.safetensors").write_bytes(b"\x08")
    assert typed("serve-check", str(out)).returncode == 1


@pytest.mark.parametrize(
    ("values", "is_best"),
    [
        ({}, False),
        ({"weights_of_step": 4, "best_step": 2, "best_accuracy": 0.5}, False),
        ({"weights_of_step": 2, "best_step": 2, "best_accuracy": 0.5}, True),
    ],
)
def test_best_exports_only_the_best_checkpoint(copy, values, is_best):
    (result,) = copy.glob("grpo/*/result.json")
    result.write_text(json.dumps({"steps": 4, **values}))
    done = typed("weights", "export", "last", "--best", f"store={copy}")
    assert done.returncode == (0 if is_best else 1)
    if is_best:
        assert Path(done.stdout.strip()) == next(copy.glob("export/*"))
    else:
        assert "train.keep_best=true" in done.stderr


def test_best_exports_the_best_checkpoint_of_an_unfinished_run(copy, tmp_path):
    (split,), (strategy,) = copy.glob("split/*"), copy.glob("strategy/*")
    (fetched,), (grpo,) = copy.glob("fetch/*"), copy.glob("grpo/*")
    attempt = copy / ".work" / f"grpo-{grpo.name}"
    best = attempt / "checkpoints" / "step_000002"
    shutil.copytree(split / "train", best / "weights")  # the fetched weights, cut for two cards
    shutil.copytree(strategy / "train_strategy", best / "train_strategy")
    written = {str(file.relative_to(best)): file for file in sorted(best.rglob("*")) if file.is_file()}
    files = {name: {"bytes": file.stat().st_size, "sha256": digest(file)} for name, file in written.items()}
    state = json.dumps({"best": {"step": 2, "accuracy": 0.75, "misses": 1}, "files": files})
    for step in (best, best.with_name("step_000003")):
        step.mkdir(exist_ok=True)
        (step / "state.json").write_text(state)
    shutil.rmtree(grpo)

    unnamed = typed("weights", "export", "last", "--best", f"store={copy}")
    assert unnamed.returncode == 2 and "OUT: is required" in unnamed.stderr
    done = typed("weights", "export", "last", str(tmp_path / "out"), "--best", f"store={copy}")
    assert done.returncode == 0, done.stderr
    assert "step 2, held-out accuracy 0.750, the best so far" in done.stderr
    exported, expected = (load_file(path / "model.safetensors") for path in (tmp_path / "out", fetched))
    assert exported.keys() == expected.keys()
    assert all(np.array_equal(exported[name], expected[name]) for name in expected)
