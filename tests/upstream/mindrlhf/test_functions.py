"""Functions of mindrlhf for what grpoflow renders: learning rates, tokenizers and the reward of puzzles.

Upstream's own code runs (functions.py, in its interpreter).
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.files import all_configs, arguments, grpo_config
from stages.engines.mindrlhf.rules import ANSWER_PREFIX
from stages.engines.mindrlhf.vocabulary import LAST_TEXT, LAST_TEXT_ID, leftover
from stages.engines.outside import dump
from tests.stages.engines.mindrlhf.jobs import job_of, paths
from tests.upstream.programs import ask

pytestmark = [pytest.mark.upstream, pytest.mark.core, pytest.mark.timeout(900)]
SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
ANSWER = "</answer>"
PEAK, SHARE, WARMUP, STEPS = 1e-4, 0.1, 3, 10
SCHEDULES = [(style, iterations) for style in ("linear", "cosine") for iterations in (1, 2, 3)]
"""train.schedule and train.num_iterations."""
TINY = ("model.eos_token_id=[258,256]", "model.pad_token_id=256", "model.bos_token_id=256")


def tokenizer_files(directory, size):
    """A byte-level vocabulary of `size` texts, with Qwen2.5's first special tokens behind them."""
    directory.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate(alphabet)}
    letter = "".join(piece for piece, _ in pre_tokenizers.ByteLevel(False).pre_tokenize_str(LAST_TEXT))
    for index in range(len(alphabet), size):
        vocabulary[letter if index == LAST_TEXT_ID else f"word{index}"] = index
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    (directory / "merges.txt").write_text("#version: 0.2\n")
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made.save(str(directory / "tokenizer.json"))
    return directory


def text_request(job, directory, ids):
    """Return a request for functions.text with the files and arguments of a run."""
    at = dataclasses.replace(paths(job), tokenizer=directory)
    predict = directory / f"predict_{job.version}_{job.engine.tokenizer}.yaml"
    predict.write_text(dump(all_configs(job, at, resume=False)["predict.yaml"]))
    passed = dict(item[2:].split("=", 1) for item in arguments(job, at, resume=False))
    kind = passed.get("tokenizer_type", passed.get("custom_model_name"))
    return {
        "what": "text", "version": job.version, "type": kind, "tokenizer_dir": passed["tokenizer_dir"],
        "predict": str(predict), "ids": [ids],
    }  # fmt: skip


def rate_request(version, schedule, iterations):
    """Return a request for the rates of twice the updates of a run."""
    job = job_of(
        *SEVEN, f"engine.contract={version}", f"train.steps={STEPS}", f"train.schedule={schedule}",
        f"train.final_share={SHARE}", f"train.warmup_steps={WARMUP}", f"train.learning_rate={PEAK}",
        f"train.num_iterations={iterations}",
    )  # fmt: skip
    schedule = grpo_config(job, paths(job), False)["actor_config"]["lr_schedule"]
    return {"what": "rate", "updates": 2 * STEPS * iterations, **schedule}


def puzzle_request(header):
    """Return a request for the rewards of a right and a wrong answer to a prompt that ends in `header`."""
    answers = [f"<think>x</think><answer>Ann is a {kind}</answer>" for kind in ("knight", "knave")]
    prompts = [f"Who is Ann? {header}"] * 2
    arguments = {"completions": answers, "solution": ["Ann is a knight"] * 2, "prompts": prompts}
    return {"what": "puzzles", "arguments": arguments}


def request(version, directory):
    qwen = tokenizer_files(directory / "qwen", 151643)
    tiny = tokenizer_files(directory / "tiny", 256)
    vocabulary = json.loads((tiny / "vocab.json").read_text())
    answer = [vocabulary[letter] for letter in ANSWER]
    complete = job_of(*SEVEN, f"engine.contract={version}")
    file = job_of(*SEVEN, f"engine.contract={version}", "engine.tokenizer=file")
    second = job_of(*SEVEN, f"engine.contract={version}", *TINY)
    assert (complete.engine.tokenizer, second.engine.tokenizer) == ("qwen", "file")
    forced = dataclasses.replace(second, engine=dataclasses.replace(second.engine, tokenizer="qwen"))
    return {
        **{
            f"{style} {iterations}": rate_request(version, style, iterations)
            for style, iterations in SCHEDULES
        },
        "puzzles": puzzle_request(""),
        "puzzles with header": puzzle_request(f"{ANSWER_PREFIX} "),
        "qwen": text_request(complete, qwen, [*answer, 151645]),
        "qwen, file": text_request(file, qwen, [*answer, 151645]),
        "tiny, file": text_request(second, tiny, [*answer, 258]),
        "tiny, qwen": text_request(forced, tiny, [*answer, 258]),
    }


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def results(version, checkout, interpreter, tmp_path_factory):
    """Results of a version's code."""
    directory = tmp_path_factory.mktemp("functions")
    path = f"{checkout(f'mindrlhf-{version}')}:{checkout('mindformers-051d65f')}"
    env = {"HOME": str(directory), "GLOG_v": "3", "PYTHONPATH": path}
    program = Path(__file__).with_name("functions.py")
    return ask(interpreter("mindspore"), program, request(version, directory), env=env)


@pytest.mark.parametrize(("schedule", "iterations"), SCHEDULES)
def test_the_rate_falls_over_steps_times_iterations(results, schedule, iterations):
    updates = STEPS * iterations
    shares = [min(1, update / updates) for update in range(2 * updates)]
    fall = shares if schedule == "linear" else [(1 - math.cos(math.pi * share)) / 2 for share in shares]
    expected = [PEAK * (1 - (1 - SHARE) * item) for item in fall]
    expected[:WARMUP] = [PEAK * update / WARMUP for update in range(WARMUP)]
    assert results[f"{schedule} {iterations}"] == pytest.approx(expected, rel=1e-5)


def test_puzzles_are_judged_only_after_the_header(results):
    right, wrong = results["puzzles"]
    assert right == wrong
    right, wrong = results["puzzles with header"]
    assert right > wrong


def test_the_stop_token_of_qwen_remains_as_a_letter_unless_the_file_is_read(results, version):
    job = job_of(*SEVEN, f"engine.contract={version}")
    result = leftover(job.model, job.engine.tokenizer)
    assert result is not None
    assert results["qwen"]["text"] == [ANSWER + result.text] and results["qwen"]["eos"] == 151643
    assert results["qwen, file"]["text"] == [ANSWER] and results["qwen, file"]["eos"] == 151643


def test_another_vocabulary_is_read_from_its_file(results):
    assert results["tiny, file"] == {"text": [ANSWER], "eos": 256, "largest": 258}
    forced = results["tiny, qwen"]  # pads with an id that has no row in the weights, if it reads any ids
    assert "raised" in forced or forced["eos"] == 151643
