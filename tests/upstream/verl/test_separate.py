"""Training and generation in different workers at the same time, with the real verl on a CPU."""

import json
from pathlib import Path

import pytest

from tests.upstream.programs import ask
from tests.upstream.verl.product import Run, grpoflow, tiny_run

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(3600)]
HERE = Path(__file__).parent
STEPS = 4


def test_completions_are_generated_with_new_weights_while_training_goes_on(interpreter, tmp_path):
    """With a staleness of 1, steps 3 and 4 train on completions of weights that were sent during the run.

    The vocabulary is not padded, so that both programs give completions the same probabilities if their
    weights are equal. Plain torch finds which weights answered a request: those of the version that the
    server names, and not those before it, which a server without new weights would use.
    """
    python, record = interpreter("verl"), tmp_path / "record.jsonl"
    overrides = [
        *tiny_run(python, tmp_path), "layout=dp1_mp1_pp1", "engine.mode=fully_async",
        "engine.staleness=1", f"train.steps={STEPS}", "train.checkpoint_every=2", "model.vocab_size=346",
        "train.learning_rate=0.01", "train.schedule=constant",
        f"+engine.env.PYTHONPATH={HERE / 'recorded'}", f"+engine.env.GRPOFLOW_TEST_RECORD={record}",
    ]  # fmt: skip
    done = grpoflow(tmp_path, "run", "--until", "export", *overrides)
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run(tmp_path)
    rows = [json.loads(line) for line in (run.grpo / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert all(0 <= row["staleness"] <= row["staleness_max"] <= 1 for row in rows)
    assert all(0 <= row["wait_share"] <= 1 and "rollout_s" not in row for row in rows)
    assert all(row["grad_norm"] > 0 and row["reshard_s"] > 0 for row in rows)
    assert any(row["staleness"] > 0 for row in rows)  # generation was ahead
    newest = [row["step"] - 1 - row["staleness"] for row in rows]  # mean version that generated
    assert newest[-1] > newest[0] and newest[-1] >= STEPS - 2
    fresh = [row["rollout_logprob_diff"] for row in rows if row["staleness_max"] == 0]
    stale = [row["rollout_logprob_diff"] for row in rows if row["staleness"] == 1]
    assert fresh and max(fresh) < 1e-4 < 1e-3 < min(stale)

    (fetched,) = (tmp_path / "store/fetch").iterdir()
    request = {"record": str(record), "model": str(fetched), "artifact": str(run.grpo), "steps": STEPS}
    answer = ask(python, HERE / "versions.py", request)
    assert answer["trained"] == 0  # the last version that was sent
    versions = {row["version"] for row in answer["versions"]}
    assert len(versions) >= 3 and max(versions) >= STEPS - 2
    for row in answer["versions"]:
        assert row["own"] < 1e-4 < 1e-3 < row.get("before", 1)
