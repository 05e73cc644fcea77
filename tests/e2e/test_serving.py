"""What leaves the store loads elsewhere and answers as evaluate saw it."""

import re
import subprocess
import sys

import pytest

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
