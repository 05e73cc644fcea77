"""What leaves the store loads elsewhere and answers as evaluate saw it."""

import re
import subprocess
import sys

import pytest


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
