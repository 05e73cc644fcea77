"""DeepSeek-V3, trained by mindrlhf on four ranks, evaluated by vLLM on a CPU: its training is made up."""

import pytest

from tests.e2e.deepseek import trained
from tests.upstream.verl.product import grpoflow
from tests.upstream.vllm.product import MAX_TOKENS, Prepared, result, samples
from tests.upstream.vllm.test_evaluate import greedy_texts

pytestmark = [pytest.mark.upstream, pytest.mark.core, pytest.mark.timeout(3600)]


def test_greedy_answers_are_those_of_transformers(interpreter, tmp_path):
    python, prompts = interpreter("vllm"), 64
    overrides = trained(
        tmp_path, "evaluate.program=vllm", f"evaluate.python={python}", "evaluate.layout.tensor_parallel=1",
        "evaluate.layout.replicas=1", "evaluate.sample_prompts=0", f"evaluate.logged_samples={prompts}",
        f"rollout.max_tokens={MAX_TOKENS}", "rollout.min_tokens=0", "rollout.repetition_penalty=1.0",
    )  # fmt: skip
    done = grpoflow(tmp_path, "run", "--until", "export", *overrides)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    run = Prepared(tmp_path, overrides)
    (artifact,) = (tmp_path / "store/evaluate").iterdir()
    assert result(artifact)["program"]["dtype"] == "float32"
    rows = samples(artifact)
    assert len(rows) == prompts
    for stage, column in (("fetch", "before"), ("export", "after")):
        expected = greedy_texts(run, python, stage)
        assert [row[column] for row in rows] == expected
        assert len(set(expected)) > 10  # the model does not say one thing to all
    assert sum(row["before"] != row["after"] for row in rows) > prompts / 4
