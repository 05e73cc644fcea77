"""grpoflow without MindSpore: verl trains, vLLM evaluates, and every stage from fetch to report runs."""

import json

import pytest

from tests.e2e import wheel
from tests.upstream.verl.product import tiny_run

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(2400)]


def test_fetch_to_report(interpreter, tmp_path):
    grpoflow = wheel.install(tmp_path)
    words = [*tiny_run(interpreter("vllm"), tmp_path), "sft.enabled=false", "evaluate.program=vllm"]
    done = grpoflow("run", *words)
    manifests = {
        path.parts[-3]: json.loads(path.read_text()) for path in tmp_path.glob("store/*/*/manifest.json")
    }
    assert {"fetch", "tokenize", "grpo", "export", "evaluate", "report"} <= manifests.keys(), done.stderr
    assert not any("mindspore" in manifest["versions"] for manifest in manifests.values())
    (result,) = (json.loads(path.read_text()) for path in tmp_path.glob("store/evaluate/*/result.json"))
    assert result["program"]["name"] == "vllm" and result["prompts"] == 32
    (page,) = tmp_path.glob("store/report/*/index.html")
    assert "vllm" in page.read_text().lower()
