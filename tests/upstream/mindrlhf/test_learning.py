"""mindrlhf teaches: 40 steps raise the greedy accuracy on questions that no step has shown."""

import pytest

from tests.e2e.outside import result, rows
from tests.upstream.mindrlhf.runs import finish

pytestmark = pytest.mark.upstream
STEPS = 40


@pytest.mark.timeout(3600)
def test_forty_steps_raise_greedy_accuracy(upstream, tmp_path):
    done = finish(
        upstream("e8a8fc1"),
        tmp_path,
        "dataset.train_rows=320",  # 8 a step
        "dataset.test_rows=256",
        "train.prompts_per_step=8",
        "rollout.num_generations=8",
        "rollout.max_tokens=8",
        "engine.pack_num=32",
        "tokenize.max_prompt_length=40",
        "train.steps=80",  # two updates a step
        "train.warmup_steps=4",
        "train.learning_rate=1e-4",
        "train.checkpoint_every=20",
        "evaluate.sample_prompts=64",
    ).done
    before, after = (float(done.result[name]) for name in ("accuracy_sft", "accuracy_grpo"))
    print(f"greedy accuracy on 256 questions: {before} before, {after} after {STEPS} steps")
    assert before < 0.5 and result(tmp_path / "store", "evaluate")["mean_at_k"]["sft"] > 0.1
    assert after > before + 3 * (0.25 / 256) ** 0.5, done.stderr
    rewards = [row["reward"] for row in rows(tmp_path / "store", "grpo")]
    assert len(rewards) == STEPS and sum(rewards[-10:]) > sum(rewards[:10])
