"""Stage evaluate with vLLM: batches, what is rendered, weights from ranks, and reading of the answers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.load import defaults, load
from stages.base.errors import InputError
from stages.grpo.data import Prompts, Vocabulary
from stages.inference import arguments, evaluate
from stages.inference.evaluate import FinishedPrompts, batches, read_answers
from stages.tokenizer import SpecialIds, train

EVALUATE = replace(defaults().evaluate, batch_prompts=4, sample_prompts=3, num_samples=2, k=2)
INPUTS = {name: Path(f"/store/{name}") for name in ("before", "after", "tokenize", "fetch")}


def test_batches_cover_all_prompts_and_hold_batch_prompts_completions():
    made = list(batches(10, EVALUATE))
    greedy = [row for batch in made if not batch.samples for row in range(batch.start, batch.stop)]
    sampled = [row for batch in made if batch.samples for row in range(batch.start, batch.stop)]
    assert (greedy, sampled) == (list(range(10)), [0, 1, 2])
    assert max((batch.stop - batch.start) * max(1, batch.samples) for batch in made) <= 4
    assert len({batch.name for batch in made}) == len(made)
    assert all(not batch.samples for batch in batches(10, replace(EVALUATE, sample_prompts=0)))


def job_of(*overrides):
    """Return the rendered job and start of a run of engine=verl."""
    base = ("engine=verl", "engine.device=cpu", "engine.python=/p", "evaluate.program=vllm")
    config = load([*base, *overrides]).plain()
    made = evaluate.render(config, INPUTS, Path("/work"))
    return json.loads(made.files["job.json"]), made.start


def test_the_program_gets_the_settings_of_engine_and_evaluate():
    job, start = job_of(
        "+engine.env.A=1", "+engine.env.B=1", "+evaluate.env.B=2", "engine.env_scripts=[/set_env.sh]",
        "evaluate.layout={tensor_parallel: 2, replicas: 3}", "+evaluate.upstream.max_num_batched_tokens=4096",
        "rollout.temperature=0.7", "rollout.top_p=0.9",
    )  # fmt: skip
    assert (start.python, start.env_scripts, start.workers, start.each_node) == (
        "/p",
        ("/set_env.sh",),
        6,
        True,
    )
    assert (start.env["A"], start.env["B"], start.env["HF_HUB_OFFLINE"]) == ("1", "2", "1")
    assert job["arguments"]["max_num_batched_tokens"] == 4096 and job["replicas"] == 3
    assert job["arguments"]["max_model_len"] == 24 + 28 and "dtype" not in job["arguments"]
    assert (job["drawing"]["temperature"], job["drawing"]["top_p"], job["drawing"]["top_k"]) == (0.7, 0.9, 0)
    assert job["models"] == {"before": "/store/before", "after": "/store/after"}
    other = job_of("evaluate.python=/q", "evaluate.dtype=bfloat16")
    assert (other[1].python, other[0]["arguments"]["dtype"]) == ("/q", "bfloat16")


def test_answers_of_an_earlier_attempt_count_unless_what_decides_them_changes():
    place = job_of()[0]["answers"]
    for same in ("evaluate.layout.replicas=2", "evaluate.layout.tensor_parallel=2", "+evaluate.env.A=b"):
        assert job_of(same)[0]["answers"] == place
    for other in ("seed=1", "rollout.temperature=0.9", "evaluate.dtype=bfloat16", "evaluate.batch_prompts=8"):
        assert job_of(other)[0]["answers"] != place


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("evaluate.dtype=bfloat16",), "dtype"),
        (("evaluate.layout.tensor_parallel=2",), "tensor_parallel_size"),
        (("evaluate.max_model_len=60",), "max_model_len"), (("evaluate.batch_prompts=16",), "max_num_seqs"),
    ],
)  # fmt: skip
def test_upstream_is_refused_for_the_arguments_that_a_key_renders(overrides, key):
    before, after = job_of()[0]["arguments"], job_of(*overrides)[0]["arguments"]
    assert before.get(key) != after[key]
    assert arguments.RENDERED[key] == overrides[0].partition("=")[0]
    assert set(after) <= {*arguments.RENDERED}


@pytest.fixture(scope="module")
def vocabulary():
    tokenizer = train(["12 + 30 = 42"] * 5, 300)
    end, pad = (tokenizer.token_to_id(f"<|{name}|>") for name in ("im_end", "endoftext"))
    return Vocabulary(tokenizer, SpecialIds(None, (end,), pad))


def prompts_of(count):
    return Prompts(np.zeros((count, 1), np.int32), np.ones(count, np.int32), ("",) * count, ("",) * count)


def write_answers(directory, vocabulary, count):
    """Write answers that number the completions."""
    (end,) = vocabulary.special.eos
    for batch in batches(count, EVALUATE):
        rows = [
            [*vocabulary.tokenizer.encode(f"{row}.{sample}").ids, end]
            for row in range(batch.start, batch.stop)
            for sample in range(max(1, batch.samples))
        ]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (directory / f"before-{batch.name}.jsonl").write_text(text)


def test_answers_are_read_in_the_order_of_prompts_and_samples(tmp_path, vocabulary):
    write_answers(tmp_path, vocabulary, 10)
    done = read_answers(tmp_path, "before", prompts_of(10), vocabulary, EVALUATE, 300)
    assert done.texts == [f"{row}.0" for row in range(10)]
    assert done.samples == [f"{row}.{sample}" for row in range(3) for sample in range(2)]
    assert done.lengths == [len(vocabulary.tokenizer.encode(text).ids) + 1 for text in done.texts]


@pytest.mark.parametrize("damage", ["", "[1]\n", "[300]\n[1]\n", "[1.5]\n[1]\n"])
def test_missing_and_wrong_answers_are_refused(tmp_path, vocabulary, damage):
    write_answers(tmp_path, vocabulary, 10)
    file = tmp_path / "before-greedy-000008-000010.jsonl"
    file.write_text(damage)
    with pytest.raises(InputError, match="greedy-000008"):
        read_answers(tmp_path, "before", prompts_of(10), vocabulary, EVALUATE, 300)
    file.unlink()
    with pytest.raises(InputError, match="does not exist"):
        read_answers(tmp_path, "before", prompts_of(10), vocabulary, EVALUATE, 300)


def test_progress_counts_the_prompts_of_both_models(tmp_path):
    reports, job = [], tmp_path / "job.json"
    watch = FinishedPrompts(tmp_path / "log", tmp_path / "answers", job, lambda *args: reports.append(args))
    watch.poll()  # before the job is written
    named = {batch.name: vars(batch) for batch in batches(10, EVALUATE)}
    job.write_text(json.dumps({"batches": named}))
    results = tmp_path / "answers" / "digest"
    results.mkdir(parents=True)
    for model, name in (("before", "greedy-000000-000004"), ("after", "sampled-000000-000002")):
        (results / f"{model}-{name}.jsonl").write_text("")
        watch._looked_s = -np.inf
        watch.poll()
    assert reports == [(4, 26, "before GRPO"), (6, 26, "after GRPO")]
