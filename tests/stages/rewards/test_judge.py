"""The reward judge against a small server on loopback: what it asks, and what it does with the answers."""

import json
import threading
import time
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stages.base.errors import InputError
from stages.rewards import judge as module
from stages.rewards.config import JudgeConfig, RewardConfig, problems
from stages.rewards.process import Batch, Failure
from stages.rewards.score import check_failures, prepare, score

KEY = "key-that-must-stay-in-the-environment"


class Service(ThreadingHTTPServer):
    """A service that answers each request with what `reply` returns for its message and its number."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.headers, self.paths = [], [], []
        self.running = self.most_running = 0
        self.lock = threading.Lock()
        self.reply = lambda text, count: "Score: 5"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        service = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with service.lock:
            service.requests.append(body)
            service.headers.append(dict(self.headers))
            service.paths.append(self.path)
            count = Counter(each["messages"][0]["content"] for each in service.requests)
            service.running += 1
            service.most_running = max(service.most_running, service.running)
        text = body["messages"][0]["content"]
        try:
            answer = service.reply(text, count[text])
        finally:
            with service.lock:
                service.running -= 1
        status, headers, content = answer if isinstance(answer, tuple) else (200, {}, completion(answer))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Print nothing."""


def completion(text):
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 7}}).encode()


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setattr(module, "_JUDGES", {})
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.01)
    with Service() as running:
        yield running
        running.shutdown()


def config(service, **changes):
    plain = JudgeConfig(
        url=service.url,
        model="judge-1",
        prompt="{prompt}|{solution}|{completion}",
        score_pattern=r"Score: (-?\d+)",
        score_range=(0.0, 10.0),
        retries=2,
        timeout_s=20.0,
    )
    return replace(plain, **changes)


def judged(settings, completions, solutions=None, **columns):
    count = len(completions)
    columns = {"prompts": ["q"] * count, **columns}
    return module.judge(settings, Batch(completions, solutions or ["t"] * count, columns))


def test_each_completion_is_asked_about_with_its_own_values(service):
    service.reply = lambda text, count: f"Because. Score: 1\nScore: {text.rpartition('|')[2]}"
    settings = config(service, temperature=0.5, max_tokens=None, body={"seed": 3})
    scored = judged(settings, ["0", "7", "10"], ["a", "b", "{completion}"], prompts=["x", "y", "z"])
    assert scored.outcomes == [0.0, 0.7, 1.0]  # the last match, as a share of the range
    asked = sorted(request["messages"][0]["content"] for request in service.requests)
    assert asked == ["x|a|0", "y|b|7", "z|{completion}|10"]  # values are not searched for names
    assert set(service.paths) == {"/v1/chat/completions"}
    rest = {key: value for key, value in service.requests[0].items() if key != "messages"}
    assert rest == {"model": "judge-1", "temperature": 0.5, "seed": 3}
    assert "Authorization" not in service.headers[0]


def test_columns_of_the_dataset_are_part_of_the_request(service):
    settings = config(service, prompt='{level} {"json": 1} {completion} {}')
    judged(settings, ["a", "b"], level=[3, 4])
    asked = sorted(request["messages"][0]["content"] for request in service.requests)
    assert asked == ['3 {"json": 1} a {}', '4 {"json": 1} b {}']
    (accepted,) = prepare(RewardConfig(("judge",), (1.0,), None, judge=settings))
    assert accepted.names == {"level"}
    with pytest.raises(InputError, match=r"reward\.judge\.prompt: names level"):
        judged(settings, ["a"])


UNUSABLE = {
    "fine work": "no score",
    "Score: 11": "not within 0 and 10",
    "Score: -1": "not within 0 and 10",
}


@pytest.mark.parametrize("answer", UNUSABLE)
def test_an_answer_without_a_score_is_a_failure_and_is_asked_for_again_later(service, answer):
    service.reply = lambda text, count: answer if count == 1 else "Score: 10"
    settings = config(service)
    (failure,) = judged(settings, ["a"]).outcomes
    assert isinstance(failure, Failure) and UNUSABLE[answer] in failure.message
    assert judged(settings, ["a"]).outcomes == [1.0]


def test_scores_may_fall(service):
    service.reply = lambda text, count: "Score: 1"
    assert judged(config(service, score_range=(5.0, 1.0)), ["a"]).outcomes == [1.0]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_request_is_repeated_after_errors_that_may_pass(service, status):
    service.reply = lambda text, count: (status, {}, b"busy") if count < 3 else "Score: 10"
    scored = judged(config(service), ["a"])
    assert scored.outcomes == [1.0]
    assert scored.usage == {"judge_requests": 3, "judge_prompt_tokens": 100, "judge_completion_tokens": 7}


def test_the_number_of_repetitions_is_limited(service):
    service.reply = lambda text, count: (503, {}, b"busy")
    (failure,) = judged(config(service), ["a"]).outcomes
    assert "HTTP status 503: busy" in failure.message and len(service.requests) == 3


def test_the_service_says_how_long_to_wait(service):
    service.reply = lambda text, count: (429, {"Retry-After": "1"}, b"") if count == 1 else "Score: 10"
    began = time.monotonic()
    assert judged(config(service), ["a"]).outcomes == [1.0]
    assert time.monotonic() - began >= 0.8


def test_a_request_that_is_too_long_is_not_repeated(service):
    service.reply = lambda text, count: (400, {}, b"maximum context length")
    (failure,) = judged(config(service), ["a"]).outcomes
    assert "maximum context length" in failure.message and len(service.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_a_service_that_refuses_everything_ends_the_run(service, monkeypatch, status):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    target = {"Location": f"{service.url}/other"}
    service.reply = lambda text, count: (status, target, f"no: {KEY}".encode())
    with pytest.raises(InputError, match=rf"HTTP status {status}") as caught:
        judged(config(service, key_variable="JUDGE_KEY"), ["a"])
    assert KEY not in str(caught.value)  # though the service repeats it
    assert set(service.paths) == {"/v1/chat/completions"}  # no redirection is followed


def test_a_slow_service_is_late(service, monkeypatch):
    done = threading.Event()
    service.reply = lambda text, count: done.wait(20) and "Score: 1"
    scored = judged(config(service, retries=0, timeout_s=0.2), ["a"])
    done.set()
    (failure,) = scored.outcomes
    assert failure.is_late and "after 0.2 s" in failure.message
    reward = RewardConfig(("judge",), (1.0,), None, max_failures=0, judge=config(service))
    columns = score(replace(reward, judge=config(service, url="http://127.0.0.1:9")), ["a"], ["b"])
    columns.late["judge"] = 1
    with pytest.raises(InputError, match=r"raise reward\.judge\.timeout_s"):
        check_failures(reward, columns, 1, "completions")


def test_an_address_that_nobody_listens_at_is_a_failure(service):
    settings = config(service, url="http://127.0.0.1:9/v1", retries=1)
    (failure,) = judged(settings, ["a"]).outcomes
    assert "cannot be reached" in failure.message


def test_requests_at_the_same_time_are_limited(service):
    service.reply = lambda text, count: time.sleep(0.05) or "Score: 3"
    judged(config(service, concurrency=3), [str(number) for number in range(12)])
    assert service.most_running == 3  # neither more nor one after the other


def test_equal_requests_are_made_once(service):
    service.reply = lambda text, count: time.sleep(0.05) or f"Score: {min(count, 9)}"
    settings = config(service)
    first = judged(settings, ["a", "b", "a", "a"])
    assert first.outcomes == [0.1] * 4 and len(service.requests) == 2
    assert first.usage["judge_requests"] == first.usage["judge_cached"] == 2
    assert judged(settings, ["a"]).usage == {"judge_cached": 1}
    other = judged(config(service, temperature=1.0), ["a"])  # another request
    assert other.usage["judge_requests"] == 1


def test_answers_are_kept_for_later_runs_by_content(service, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    settings = config(service, cache=str(tmp_path / "cache"), key_variable="JUDGE_KEY")
    service.reply = lambda text, count: "Score: 4"
    assert judged(settings, ["a"]).outcomes == [0.4]
    assert service.headers[0]["Authorization"] == f"Bearer {KEY}"
    (file,) = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    text = file.read_text()
    assert KEY not in text and str(service.server_port) not in text
    module._JUDGES.clear()  # another process
    assert judged(settings, ["a"]).usage == {"judge_cached": 1}
    assert judged(replace(settings, score_range=(0.0, 4.0)), ["a"]).outcomes == [1.0]  # no new request
    assert len(service.requests) == 1
    file.write_text("{damaged")
    module._JUDGES.clear()
    assert judged(settings, ["a"]).outcomes == [0.4] and len(service.requests) == 2


def test_what_asking_costs_is_counted(service):
    settings = config(service, prompt_price=2.0, completion_price=10.0)
    reward = RewardConfig(("judge", "number"), (0.5, 1.0), None, judge=settings)
    scores = score(reward, ["4", "5"], ["4", "4"], columns={"prompts": ["q", "q"]})
    assert scores.total.tolist() == [1.25, 0.25]
    assert scores.usage == {
        "judge_requests": 2,
        "judge_prompt_tokens": 200,
        "judge_completion_tokens": 14,
        "judge_cost": pytest.approx((200 * 2.0 + 14 * 10.0) / 1e6),
    }


def test_a_missing_key_is_named_and_not_its_value(service, monkeypatch):
    settings = config(service, key_variable="JUDGE_KEY")
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(InputError, match=r"reward\.judge\.key_variable=JUDGE_KEY"):
        judged(settings, ["a"])


REFUSED = {
    "url": ("127.0.0.1:8000", "ftp://host/v1", "http://user:password@host/v1", "http://host/v1?key=1",
            "http://host/v1/chat/completions"),
    "model": ("",),
    "prompt": ("grade {solution}",),
    "score_pattern": ("(", "Score", "(a)(b)"),
    "score_range": ((1.0,), (1.0, 1.0)),
    "key_variable": ("NO_SUCH_VARIABLE_HERE",),
}  # fmt: skip


@pytest.mark.parametrize("key, value", [(key, value) for key, values in REFUSED.items() for value in values])
def test_settings_that_cannot_work_are_refused_by_plan(service, key, value):
    good = config(service, prompt="{completion}")
    reward = RewardConfig(("judge",), (1.0,), None, judge=good)
    assert list(problems(reward)) == []
    (problem,) = problems(replace(reward, judge=replace(good, **{key: value})))
    assert problem.path == f"reward.judge.{key}" and problem.remedy and "password" not in str(problem.value)
    assert [each.path for each in problems(replace(reward, judge=None))] == ["reward.judge"]
