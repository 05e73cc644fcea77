"""Each rule about a version's defects, against the upstream lines that it names.

Upstream's own code runs (faults.py, in its interpreter): what a rule refuses raises there or teaches nothing;
what grpoflow renders by default does neither.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.files import all_configs, grpo_config
from stages.engines.mindrlhf.rules import HEADER
from stages.engines.mindrlhf.stage import arguments
from stages.engines.mindrlhf.vocabulary import LAST_TEXT, LAST_TEXT_ID, leftover
from stages.engines.outside import dump
from tests.stages.engines.mindrlhf.jobs import job_of, paths
from tests.upstream.programs import ask

pytestmark = [pytest.mark.upstream, pytest.mark.core, pytest.mark.timeout(900)]
SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
REPLICAS = (1, 2, 3, 4)
GENERATIONS = 4
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
    """Return a request for faults.text with the files and arguments of a run."""
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


def reward_requests():
    """Return requests for a truth without a number, and for puzzles with and without the header."""
    no_number = {"completions": ["42"], "solution": ["x"]}
    requests = {name: ("reward_fn", no_number) for name in ("accuracy_reward", "qwen_accuracy_reward")}
    answers = [f"<think>x</think><answer>Ann is a {kind}</answer>" for kind in ("knight", "knave")]
    puzzles = {"completions": answers, "solution": ["Ann is a knight"] * 2}
    for name, prompt in {"puzzles": "Who is Ann? ", "puzzles with header": f"Who is Ann? {HEADER} "}.items():
        requests[name] = ("kk_reward_fn", {**puzzles, "prompts": [prompt] * 2})
    return {
        name: {
            "what": "reward", "module": module, "arguments": arguments,
            "name": "kk_reward" if name.startswith("puzzles") else name,
        }
        for name, (module, arguments) in requests.items()
    }  # fmt: skip


def request(version, directory):
    job = job_of(*SEVEN, f"engine.contract={version}", "engine.pack_num=4")
    rl = grpo_config(job, paths(job), False)["rl_config"]
    rate = rate_request(version, "linear", 1)
    rows = {
        "what": "packs", "sample_length": job.sample_length, "samples": 16, "pack_num": job.engine.pack_num
    }  # fmt: skip
    generation = {"what": "completions", "generations": GENERATIONS}
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
        "rendered row": {"what": "mask", "seq_length": rl["seq_length"]},
        "shortest row": {"what": "mask", "seq_length": 2048},
        "short row": {"what": "mask", "seq_length": 2047},
        "rendered monitor": {"what": "loss", "full_monitor": rl.get("enable_full_monitor", False)},
        "full monitor": {"what": "loss", "full_monitor": True},
        "constant rate": rate | {"min_lr": PEAK, "lr_decay_style": "cosine"},
        "constant linear rate": rate | {"min_lr": PEAK},
        "remedy of a constant rate": rate | {"min_lr": 0.99 * PEAK},
        **{
            f"{style} {iterations}": rate_request(version, style, iterations)
            for style, iterations in SCHEDULES
        },
        **reward_requests(),
        "optimizer on the host": {"what": "optimizer"},
        "rendered packs": {**rows, "seq_length": rl["seq_length"]},
        "packs that do not fit": {**rows, "seq_length": 4 * job.sample_length - 1},
        "qwen": text_request(complete, qwen, [*answer, 151645]),
        "qwen, file": text_request(file, qwen, [*answer, 151645]),
        "tiny, file": text_request(second, tiny, [*answer, 258]),
        "tiny, qwen": text_request(forced, tiny, [*answer, 258]),
        "debugging": {**generation, "replicas": 1, "use_vllm": 2},
        **{f"{count} replicas": {**generation, "replicas": count, "use_vllm": 0} for count in REPLICAS},
    }


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def results(version, checkout, interpreter, tmp_path_factory):
    """Results of a version's code."""
    directory = tmp_path_factory.mktemp("faults")
    path = f"{checkout(f'mindrlhf-{version}')}:{checkout('mindformers-051d65f')}"
    env = {"HOME": str(directory), "GLOG_v": "3", "PYTHONPATH": path}
    program = Path(__file__).with_name("faults.py")
    return ask(interpreter("mindspore"), program, request(version, directory), env=env)


def raised(answer):
    """Return the exception's first line; an empty string if there was none."""
    return str(answer["raised"]).splitlines()[0] if isinstance(answer, dict) and "raised" in answer else ""


def test_rows_shorter_than_2048_are_refused(results):
    assert "seq_length should be larger than 2048 when use mask_compression" in raised(results["short row"])
    assert results["shortest row"] == results["rendered row"] == [2048, 2048]


def test_the_full_monitor_breaks_the_first_update_or_does_nothing(results, version):
    assert results["rendered monitor"] == -1
    if version == "e8a8fc1":
        assert "External object has no attribute old_log_ratio" in raised(results["full monitor"])
    else:
        assert results["full monitor"] == -1  # it does not look at the setting


def test_a_constant_learning_rate_is_refused_whatever_the_schedule(results):
    for name in ("constant rate", "constant linear rate"):
        assert "the 'max_lr' must be greater than the 'min_lr'" in raised(results[name])
    assert raised(results["remedy of a constant rate"]) == ""


@pytest.mark.parametrize(("schedule", "iterations"), SCHEDULES)
def test_the_rate_falls_over_steps_times_iterations(results, schedule, iterations):
    updates = STEPS * iterations
    shares = [min(1, update / updates) for update in range(2 * updates)]
    fall = shares if schedule == "linear" else [(1 - math.cos(math.pi * share)) / 2 for share in shares]
    expected = [PEAK * (1 - (1 - SHARE) * item) for item in fall]
    expected[:WARMUP] = [PEAK * update / WARMUP for update in range(WARMUP)]
    assert results[f"{schedule} {iterations}"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["accuracy_reward", "qwen_accuracy_reward"])
def test_a_ground_truth_without_a_number_ends_it(results, name):
    assert raised(results[name]).startswith("IndexError")


def test_puzzles_are_judged_only_after_the_header(results):
    right, wrong = results["puzzles"]
    assert right == wrong
    right, wrong = results["puzzles with header"]
    assert right > wrong


def test_the_optimizer_on_the_host_misses_an_argument(results):
    line = raised(results["optimizer on the host"])
    assert "parameters number of the function is 2, but the number of provided arguments is 1" in line


def test_completions_differ_as_far_as_replicas_do(results):
    for count in REPLICAS:
        job = job_of(*SEVEN, "layout.generate.data_parallel=2", f"rollout.num_generations={GENERATIONS}")
        generate = dataclasses.replace(job.layout.generate, data_parallel=count)
        job = dataclasses.replace(job, layout=dataclasses.replace(job.layout, generate=generate))
        assert set(results[f"{count} replicas"]) == {job.distinct_completions}
    assert set(results["1 replicas"]) == {1}  # all alike: every advantage 0


def test_vllms_model_under_mindformers_generation(results, version):
    if version == "e8a8fc1":
        assert "'numpy.ndarray' object has no attribute 'outputs'" in raised(results["debugging"])
    else:
        assert set(results["debugging"]) == {GENERATIONS}


def test_a_rendered_row_holds_a_complete_pack(results):
    assert results["rendered packs"] == 4  # 16 samples, 4 each
    assert results["packs that do not fit"] > 4


def test_the_stop_token_of_qwen_remains_as_a_letter_unless_the_file_is_read(results, version):
    job = job_of(*SEVEN, f"engine.contract={version}")
    result = leftover(job.model, job.engine.tokenizer)
    assert result is not None
    assert results["qwen"]["text"] == [ANSWER + result.text] and results["qwen"]["eos"] == 151643
    assert results["qwen, file"]["text"] == [ANSWER] and results["qwen, file"]["eos"] == 151643


def test_another_vocabulary_is_read_from_its_file(results):
    assert results["tiny, file"] == {"text": [ANSWER], "eos": 256, "largest": 258}
    forced = results["tiny, qwen"]  # pads with an id that has no row in the weights, if it reads any ids
    assert raised(forced) or forced["eos"] == 151643
