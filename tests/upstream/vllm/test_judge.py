"""The reward judge beside the real vLLM on a CPU, whose answers are compared with those of plain requests."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from stages.base.errors import InputError
from stages.inference.serving import serve_command
from stages.rewards.config import JudgeConfig, RewardConfig
from stages.rewards.process import Failure
from stages.rewards.score import outcomes_of
from tests.processes import wait_until
from tests.upstream.vllm.product import prepare

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(2400)]
KEY = "loopback-key"
MODEL = ("model=tiny_qwen3", "tokenize.chat_template=true", "tokenize.max_prompt_length=96")
DIGIT = {"structured_outputs": {"regex": "Score: [0-9]"}}
"""Keys of vLLM's own, which let an untrained model give a score."""
WORDS = (
    "apple",
    "Baskets!",
    "are 17",
    "??",
    "so so so",
    "Tom",
    "[x]",
    "nine and ten",
    "#### 4",
    "A",
    "= =",
    "the",
)
COMPLETIONS = [f"{word} " * (1 + number) + str(37 * number) for number, word in enumerate(WORDS)]
"""Texts that have little in common: an untrained model says the same thing to similar ones."""


@pytest.fixture(scope="module")
def server(interpreter, tmp_path_factory):
    """Return the address of vLLM's server with an untrained model of 0.2 M parameters, behind a key."""
    directory = tmp_path_factory.mktemp("judge")
    run = prepare(directory, interpreter("vllm"), *MODEL)
    port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
    variables, command = serve_command(
        str(interpreter("vllm")), run.artifact("export"), "judge", host="127.0.0.1", port=port, on_cpu=True,
        dtype="float32", tensor_parallel=1, more=("--api-key", KEY, "--max-model-len", "256"),
    )  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    url = f"http://127.0.0.1:{port}"

    def is_ready():
        try:
            return urllib.request.urlopen(f"{url}/health", timeout=5).status == 200
        except OSError:
            time.sleep(1)
            return False

    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            command, env={**inherited, **variables}, stdout=log, stderr=log, cwd=directory
        )
    try:
        wait_until(is_ready, 1500, process, (directory / "log").read_text)
        yield f"{url}/v1"
    finally:
        process.terminate()
        process.wait()


def config(url, **changes):
    plain = JudgeConfig(
        url=url,
        model="judge",
        prompt="Grade {completion} by {solution}",
        score_pattern=r"(\d)",
        score_range=(0.0, 9.0),
        max_tokens=16,
        key_variable="JUDGE_KEY",
    )
    return replace(plain, **changes)


def outcomes(judge, completions):
    reward = RewardConfig(("judge",), (1.0,), None, judge=judge)
    return outcomes_of(reward, completions, ["1"] * len(completions))["judge"]


def plain_answer(url, text):
    """Return what the server answers to one request of the test's own."""
    body = {"model": "judge", "messages": [{"role": "user", "content": text}], "temperature": 0.0}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    data = json.dumps({**body, **DIGIT, "max_tokens": 16}).encode()
    request = urllib.request.Request(f"{url}/chat/completions", data, headers)
    made = json.loads(urllib.request.urlopen(request, timeout=60).read())
    return made["choices"][0]["message"]["content"], made["usage"]


def test_scores_are_those_in_the_answers_of_the_server(server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    scored = outcomes(config(server, concurrency=4, body=DIGIT), COMPLETIONS)
    expected, tokens = [], 0
    for completion in COMPLETIONS:
        text, usage = plain_answer(server, f"Grade {completion} by 1")
        expected.append(int(text.removeprefix("Score: ")) / 9)
        tokens += usage["completion_tokens"]
    assert scored.outcomes == expected
    assert len(set(expected)) > 1  # the untrained model says different things
    assert scored.usage["judge_requests"] == len(COMPLETIONS)
    assert scored.usage["judge_completion_tokens"] == tokens


def test_an_answer_of_the_server_without_a_score_is_a_failure(server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    judge = config(server, score_pattern="no such words: (.)")
    (failure,) = outcomes(judge, COMPLETIONS[:1]).outcomes
    assert isinstance(failure, Failure) and "has no score" in failure.message


def test_the_server_refuses_a_wrong_key_and_an_unknown_model(server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "another-key")
    with pytest.raises(InputError, match="HTTP status 401") as caught:
        outcomes(config(server), COMPLETIONS[:1])
    assert "another-key" not in str(caught.value)
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with pytest.raises(InputError, match="HTTP status 404"):
        outcomes(config(server, model="nosuch"), COMPLETIONS[:1])


def test_a_completion_that_is_too_long_for_the_judge_is_a_failure(server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    (failure,) = outcomes(config(server), ["many words " * 500]).outcomes
    assert isinstance(failure, Failure) and "HTTP status 400" in failure.message
