"""evaluate.program=vllm with the real vLLM on a CPU, beside transformers in the same interpreter."""

import math
import re
import socket
import subprocess
import time
import urllib.request
from itertools import combinations
from pathlib import Path

import pytest

from tests.processes import wait_until
from tests.upstream.programs import ask, kill_when
from tests.upstream.verl.product import command, grpoflow
from tests.upstream.vllm.product import (
    MAX_TOKENS,
    PROMPTS,
    SAMPLE_PROMPTS,
    SAMPLES,
    Prepared,
    prepare,
    result,
    samples,
)

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(5400)]
PEER = Path(__file__).parent / "peer.py"
MODELS = {
    "qwen3": (
        "model=tiny_qwen3", "model.tie_word_embeddings=false", "model.eos_token_id=[345,344]",
        "tokenize.chat_template=true", "tokenize.max_prompt_length=96",
        "tokenize.system_prompt='Answer with one number.'",
    ),
    "qwen2_5": ("model=tiny",),
}  # fmt: skip
"""An untied head, two end ids, and a chat template with a system prompt; a tied head and bare prompts. Both
have a padded vocabulary: 512 rows for 346 tokens."""


@pytest.fixture(scope="module")
def evaluated(request, interpreter, tmp_path_factory):
    """Return a prepared store and the artifact of evaluate with one replica."""
    run = prepare(tmp_path_factory.mktemp(request.param), interpreter("vllm"), *MODELS[request.param])
    return run, run.evaluate()


def families(*params):
    """Run a test with these models; of each, evaluate runs once."""
    return pytest.mark.parametrize("evaluated", params, indirect=True)


def greedy_texts(run: Prepared, python: Path, stage: str) -> list[str]:
    """Return transformers' greedy answers to the tokenized prompts, decoded as grpoflow does."""
    prompts, vocabulary = run.prompts()
    ids = [row[:length].tolist() for row, length in zip(prompts.ids, prompts.lengths, strict=True)]
    request = {"directory": str(run.artifact(stage)), "prompts": ids, "max_tokens": MAX_TOKENS}
    done = ask(python, PEER, {**request, "ends": list(vocabulary.special.eos)})["answers"]
    return vocabulary.tokenizer.decode_batch(done, skip_special_tokens=True)


@families(pytest.param("qwen3", marks=pytest.mark.core), "qwen2_5")
def test_greedy_answers_are_those_of_transformers(evaluated, interpreter):
    run, artifact = evaluated
    made = result(artifact)
    assert made["program"]["dtype"] == "float32" and made["program"]["device"] == "cpu"
    rows = samples(artifact)
    assert len(rows) == PROMPTS == made["prompts"]
    for stage, column in (("fetch", "before"), ("export", "after")):
        expected = greedy_texts(run, interpreter("vllm"), stage)
        assert [row[column] for row in rows] == expected
        assert len(set(expected)) > 20  # the model does not say one thing to all
    assert sum(row["before"] != row["after"] for row in rows) > PROMPTS / 4
    assert made["mean_at_k"]["k"] == SAMPLES and made["sample_prompts"] == SAMPLE_PROMPTS


@families("qwen3")
def test_two_replicas_give_the_answers_of_one(evaluated):
    run, artifact = evaluated
    before = result(artifact), samples(artifact)
    assert run.evaluate("evaluate.layout.replicas=2", force=True) == artifact
    assert (result(artifact), samples(artifact)) == before


def test_a_killed_run_repeats_no_finished_batch(interpreter, tmp_path):
    run = prepare(tmp_path / "run", interpreter("vllm"), *MODELS["qwen2_5"])
    line = command("run", "--until", "evaluate", *run.overrides)

    def finished():
        files = run.store.glob(".work/evaluate-*/answers/*/*-*.jsonl")
        return {path: path.stat().st_mtime_ns for path in files}

    kill_when(lambda: len(finished()) >= 2, line, run.store)
    first = finished()
    assert 2 <= len(first) < 2 * (4 + 2)
    kill_when(lambda: len(finished()) > len(first), line, run.store)
    second = finished()
    assert {path: second[path] for path in first} == first
    killed = result(run.evaluate())
    whole = prepare(tmp_path / "whole", interpreter("vllm"), *MODELS["qwen2_5"])
    assert result(whole.evaluate()) == killed


def test_a_trained_model_is_judged_as_local_judges_it_and_pass_at_k_is_the_formula(interpreter, tmp_path):
    """engine=local trains until some prompts are solved sometimes; a random model solves none."""
    k, n, sampled = 3, 8, 48
    overrides = (
        f"store={tmp_path / 'store'}", "model.hidden_size=128", "model.intermediate_size=256",
        "sft.stop_accuracy=0.4", "train.steps=2", "evaluate.num_prompts=64", "evaluate.logged_samples=64",
        f"evaluate.sample_prompts={sampled}", f"evaluate.num_samples={n}", f"evaluate.k={k}",
    )  # fmt: skip
    by_vllm = "evaluate.program=vllm", f"evaluate.python={interpreter('vllm')}"
    made = {
        program: Prepared(tmp_path, overrides).evaluate(*more)
        for program, more in (("vllm", by_vllm), ("local", ()))
    }
    greedy = {
        program: [(row["before"], row["after"], row["after_right"]) for row in samples(artifact)]
        for program, artifact in made.items()
    }
    assert len(greedy["vllm"]) == 64 and greedy["vllm"] == greedy["local"]
    judged, rows = result(made["vllm"]), samples(made["vllm"])[:sampled]
    assert judged["program"]["name"] == "vllm" and 0 < judged["accuracy_grpo"] < 1
    for side, name in (("before", "sft"), ("after", "grpo")):
        right = [row[f"{side}_samples_right"] for row in rows]
        assert len(set(right)) > 2 and 0 < min(count for count in right if count) < n
        solved = sum(
            any(chosen)
            for count in right
            for chosen in combinations([True] * count + [False] * (n - count), k)
        )
        assert judged["pass_at_k"][name] == pytest.approx(solved / (math.comb(n, k) * sampled), abs=1e-12)
        assert judged["mean_at_k"][name] == pytest.approx(sum(right) / (n * sampled), abs=1e-12)


@families("qwen3")
def test_serve_check_by_interpreter_and_at_a_server(evaluated, interpreter, tmp_path):
    run, artifact = evaluated
    python = interpreter("vllm")
    store, limits = f"store={run.store}", ("--prompts", "40")
    # vLLM's text leaves out the bytes of a character that the last token does not complete
    complete = sum(not row["after"].endswith("\ufffd") for row in samples(artifact)[:40])

    def equal(done):
        return int(re.search(r"(\d+) of 40 answers equal", done.stdout)[1])

    done = grpoflow(tmp_path, "serve-check", "last", "--program", "vllm", *limits, store)
    assert "in float32" in done.stdout and equal(done) >= complete > 0, done.stdout + done.stderr
    port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
    printed = grpoflow(tmp_path, "serve", "last", "--port", str(port), store).stdout
    assert f"{python} -m vllm" in printed
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            command("serve", "last", "--exec", "--port", str(port), store),
            stdout=log,
            stderr=log,
            cwd=tmp_path,
        )
    url = f"http://127.0.0.1:{port}"

    def is_ready():
        try:
            return urllib.request.urlopen(f"{url}/health", timeout=5).status == 200
        except OSError:
            time.sleep(1)
            return False

    try:
        wait_until(is_ready, 1500, server, (tmp_path / "log").read_text)
        done = grpoflow(tmp_path, "serve-check", "last", "--url", url, *limits, store)
        assert equal(done) >= complete, done.stdout + done.stderr
    finally:
        server.terminate()
        server.wait()
