"""Jobs of a Ray cluster, with a server that answers as the dashboard of Ray 2.60 does.

Its texts and statuses are copies of real answers; tests/e2e/test_stage_jobs_ray.py asks a real Ray.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from launch.errors import LaunchError
from launch.nodes import ray_job
from launch.nodes.ray_job import RayQueue
from launch.nodes.stage_queue import Request, Unanswered
from tests.launch.launchers import local_launcher

EXISTS = """Traceback (most recent call last):
  File ".../job/job_head.py", line 134, in _raise_error
    raise RuntimeError(f"Request failed with status code {status}: {error_text}.")
RuntimeError: Request failed with status code 400: Traceback (most recent call last):
  File ".../job/job_manager.py", line 553, in submit_job
    raise ValueError(
ValueError: Job with submission_id NAME already exists. Please use a different submission_id.
.
"""
INVALID = """Traceback (most recent call last):
  File ".../job/common.py", line 560, in __post_init__
    raise TypeError(
TypeError: entrypoint_resources values must be numbers, got <class 'str'>
"""
TIMEOUT = "Job supervisor actor failed to start within 900.0 seconds. This timeout can be configured by ..."
FAULT = """Failed to start supervisor actor e-3: '('NPU resource quantities >1 must', ' be whole')'. \
Full traceback:
Traceback (most recent call last):
"""
COMMAND = """Job entrypoint command failed with exit code 2, last available logs (truncated to 20,000 chars):
2026-11-29 16:33:16,763\tINFO job_manager.py:581 -- Runtime env is setting up.
Running entrypoint for job a-1: cd /gone && exec python
sh: 1: cd: can't cd to /gone
"""
NAME = "grpoflow-split-0123456789abcdef-01234567"


class Dashboard(ThreadingHTTPServer):
    """Server with jobs, and a list of the requests that it got."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.jobs, self.requests, self.fault = {}, [], None
        self.address = f"http://127.0.0.1:{self.server_port}"

    def add(self, number, status, **more):
        """Add a job of NAME."""
        empty = dict.fromkeys(("message", "error_type", "driver_agent_http_address", "driver_exit_code"))
        name = f"{NAME}-{number}"
        self.jobs[name] = {"submission_id": name, "status": status, **empty, **more}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Print nothing."""

    def answer(self, status, values):
        text = (values if isinstance(values, str) else json.dumps(values)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        board, path = self.server, self.path.removeprefix("/api/")
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "null")
        board.requests.append((self.command, path, body, self.headers.get("Authorization")))
        if board.fault is not None:
            self.answer(*board.fault)
        elif path == "version":
            self.answer(200, {"version": "4", "ray_version": "2.60.0"})
        elif self.command == "POST" and path == "jobs/":
            board.jobs[body["submission_id"]] = {"submission_id": body["submission_id"], "status": "PENDING"}
            self.answer(200, {"submission_id": body["submission_id"]})
        elif path == "jobs/":  # jobs of drivers have no submission_id
            self.answer(200, [{"submission_id": None, "status": "RUNNING"}, *board.jobs.values()])
        elif (number := path.split("/")[1]) not in board.jobs:
            self.answer(404, f"Job {number} does not exist")
        elif path.endswith("/stop"):
            self.answer(200, {"stopped": True})
        else:
            self.answer(200, board.jobs[number])

    def do_POST(self):
        self.do_GET()


@pytest.fixture
def dashboard(monkeypatch, tmp_path):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with Dashboard() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def queue(dashboard, tmp_path):
    launcher = local_launcher(name="ray", ray_address=dashboard.address + "/")
    return RayQueue(NAME, tmp_path, launcher, {"NPU": 8})


def request(resources=None, **environment):
    return Request("grpo", ["python", "a b"], Path("/work dir"), 1, resources or {}, environment)


def test_a_job_has_the_next_number_and_reserves_resources(dashboard, queue):
    for number in (1, 9, 10):
        dashboard.add(number, "FAILED")
    dashboard.jobs[f"{NAME}x-77"] = {"submission_id": f"{NAME}x-77", "status": "RUNNING"}
    resources = {"NPU": 8, "CPU": 4, "GPU": 0.5, "memory": 2e9, "tpu": 1}
    number = queue.submit(request(resources))
    assert number == f"{NAME}-11" and queue.log(number).name == "ray-11.log"
    body = dashboard.requests[-1][2]
    assert (body["entrypoint_num_cpus"], body["entrypoint_num_gpus"]) == (4, 0.5)
    assert body["entrypoint_memory"] == 2_000_000_000 and isinstance(body["entrypoint_memory"], int)
    assert body["entrypoint_resources"] == {"NPU": 8, "tpu": 1}
    assert "working_dir" not in body["runtime_env"]
    assert body["entrypoint"].startswith("cd '/work dir' && exec env -u RAY_ADDRESS ")
    assert body["entrypoint"].endswith(f" python 'a b' >> {queue.logs}/ray-11.log 2>&1")


def test_only_documented_variables_without_secrets_are_passed(dashboard, queue):
    secret = {"MODELSCOPE_API_TOKEN": "t0ken", "RAY_AUTH_TOKEN": "t0ken", "AWS_SECRET_ACCESS_KEY": "t0ken"}
    proxies = {"HTTPS_PROXY": "http://me:t0ken@proxy:80", "HTTP_PROXY": "http://proxy:80"}
    queue.submit(request(HF_HOME="/models", PATH="/bin", **secret, **proxies))
    variables = dashboard.requests[-1][2]["runtime_env"]["env_vars"]
    shown = {"HF_HOME": "/models", "HTTP_PROXY": "http://proxy:80", "RAY_JOB_STOP_WAIT_TIME_S": "120"}
    assert variables == shown
    assert "t0ken" not in json.dumps(dashboard.requests[-1][2])


@pytest.mark.parametrize(
    ("resources", "environment", "is_unset"),
    [({"NPU": 8}, {}, True), ({"CPU": 8}, {}, False), ({"NPU": 8}, {"OMP_NUM_THREADS": "4"}, False)],
)
def test_a_stage_that_reserves_no_cpus_keeps_its_threads(resources, environment, is_unset):
    command = ray_job.entrypoint(request(resources, **environment), Path("log"))
    assert ("-u OMP_NUM_THREADS" in command) == is_unset


def test_ray_waits_longer_than_grpoflow_before_it_kills():
    for notice_s, grace_s, expected in ((120, 8.0, "120"), (0, 8.0, "23"), (120, 200.5, "216")):
        launcher = local_launcher(notice_s=notice_s, grace_s=grace_s)
        assert ray_job.stop_time(launcher) == {"RAY_JOB_STOP_WAIT_TIME_S": expected}


def test_a_job_that_another_process_submits_at_the_same_time_is_the_same(dashboard, queue, monkeypatch):
    monkeypatch.setattr(queue, "_jobs", lambda: iter(()))
    dashboard.fault = (500, EXISTS)
    assert queue.submit(request()) == f"{NAME}-1"


@pytest.mark.parametrize(
    ("status", "text", "error", "says"),
    [
        (400, INVALID, LaunchError, "Ray refuses the job: TypeError: entrypoint_resources values must"),
        (500, EXISTS.replace("already exists", "is refused"), LaunchError, "Ray refuses the job"),
        (500, "No available agent to submit job, please try again later.", Unanswered, "No available agent"),
        (503, "", Unanswered, "HTTP status 503"),
    ],
)
def test_a_refusal_is_no_missing_answer(dashboard, queue, monkeypatch, status, text, error, says):
    monkeypatch.setattr(queue, "_jobs", lambda: iter(()))
    dashboard.fault = (status, text)
    with pytest.raises(LaunchError, match=says) as raised:
        queue.submit(request())
    assert type(raised.value) is error


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_dashboard_with_a_fault_does_not_answer(dashboard, queue, status):
    dashboard.add(1, "RUNNING")
    found = queue.find()
    dashboard.fault = (status, "GCS is away")
    for question in (queue.find, lambda: queue.look(found), lambda: queue.ending(found.id)):
        with pytest.raises(Unanswered):
            question()


def test_nobody_answers(dashboard, queue):
    dashboard.shutdown()
    dashboard.server_close()
    with pytest.raises(Unanswered, match="Connection refused"):
        queue.find()


@pytest.mark.parametrize("fault", [(200, "<html>"), (302, ""), (404, ""), (200, "{}")])
def test_another_server_is_no_dashboard(dashboard, fault):
    dashboard.fault = fault
    with pytest.raises(LaunchError, match="is no dashboard of Ray") as raised:
        ray_job.version(dashboard.address)
    assert not isinstance(raised.value, Unanswered)


@pytest.mark.parametrize("place", ["variable", "path", "home"])
def test_a_token_is_sent_from_where_ray_takes_it_and_shown_nowhere(
    dashboard, queue, monkeypatch, tmp_path, place
):
    file = tmp_path / ".ray/auth_token"
    file.parent.mkdir()
    file.write_text("s3cret\n")
    if place == "variable":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "s3cret")
    elif place == "path":
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file.rename(tmp_path / "token")))
    queue.submit(request())
    assert {header for *_, header in dashboard.requests} == {"Bearer s3cret"}
    assert "s3cret" not in json.dumps([body for _, _, body, _ in dashboard.requests])
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    queue.find()
    assert dashboard.requests[-1][3] is None
    dashboard.fault = (401, "Unauthorized: Missing authentication token")
    with pytest.raises(LaunchError, match="RAY_AUTH_TOKEN") as raised:
        queue.find()
    assert "s3cret" not in str(raised.value) and not isinstance(raised.value, Unanswered)


def test_the_live_job_is_found_whoever_submitted_it(dashboard, queue):
    assert queue.find() is None
    dashboard.add(1, "FAILED")
    dashboard.add(2, "RUNNING", driver_agent_http_address="http://10.0.0.3:52365")
    found = queue.find()
    assert str(found) == f"Ray job {NAME}-2: RUNNING (10.0.0.3)" and not found.is_ending
    dashboard.add(2, "PENDING")
    assert str(queue.look(found)) == f"Ray job {NAME}-2: PENDING (for 8 NPU)"
    dashboard.add(2, "SUCCEEDED")
    assert queue.look(found) is None and queue.find() is None


def test_a_job_that_was_stopped_is_waited_for_only_if_it_runs(dashboard, queue):
    """Ray keeps a pending job that is stopped until it finds resources, and ends it then."""
    dashboard.add(1, "PENDING")
    queue.cancel(queue.find())
    assert dashboard.requests[-1][:2] == ("POST", f"jobs/{NAME}-1/stop")
    assert queue.find() is None
    dashboard.add(1, "RUNNING")
    assert queue.find().is_ending
    dashboard.add(2, "PENDING")
    queue.cancel(ray_job.Status("Ray", f"{NAME}-2", "PENDING"))
    dashboard.add(1, "STOPPED")
    assert queue.find() is None


def test_how_a_job_ended(dashboard, queue):
    times = {"start_time": 1_000, "end_time": 901_000}
    agent = {"driver_agent_http_address": "http://10.0.0.3:52365"}
    died = {
        "message": "Job supervisor actor died: The node is lost",
        "error_type": "JOB_SUPERVISOR_ACTOR_DIED",
    }
    command = {"message": COMMAND, "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": 2}
    fault = {"message": FAULT, "error_type": "JOB_SUPERVISOR_ACTOR_START_FAILURE"}
    timeout = {"message": TIMEOUT, "error_type": ray_job.START_TIMEOUT, **times}
    for number, (status, more) in enumerate(
        [("SUCCEEDED", agent), ("STOPPED", agent), ("FAILED", {**command, **agent}), ("FAILED", died),
         ("FAILED", fault), ("FAILED", timeout)]
    ):  # fmt: skip
        dashboard.add(number, status, **more)
    ends = [queue.ending(f"{NAME}-{number}") for number in range(7)]
    assert [end.text for end in ends[:5]] == [
        "SUCCEEDED",
        "STOPPED",
        "FAILED (exit code 2, 10.0.0.3, sh: 1: cd: can't cd to /gone)",
        "FAILED (Job supervisor actor died: The node is lost)",
        "FAILED (Failed to start supervisor actor e-3: '('NPU resource quantities >1 must', ' be whole')')",
    ]
    assert ends[5].text == "found no free 8 NPU in 900 s, and Ray ended it" and ends[6] is None
    assert [end.succeeded for end in ends[:6]] == [True, *[False] * 5]
    assert [end.may_pass for end in ends[:6]] == [True, False, True, True, True, True]
    assert [end.never_began for end in ends[:6]] == [*[False] * 5, True]
