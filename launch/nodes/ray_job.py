"""Ray jobs that run one stage on an existing cluster: submit, find, follow, stop, and say how they ended.

Jobs are submitted through the Jobs REST API of the cluster's dashboard, so this process needs no Ray package.
The n-th job of an artifact has the submission_id NAME-n, and Ray refuses an id that exists: two processes
that submit at the same time make one job.

What Ray 2.60 does (files below ray/dashboard/modules/job), and what follows from it:

- job_manager.py, _monitor_job_internal: a job that has not begun RAY_JOB_START_TIMEOUT_SECONDS (900 s) after
  it was submitted fails with JOB_SUPERVISOR_ACTOR_START_TIMEOUT. It is submitted again.
- job_manager.py, stop_job: a pending job stays pending when it is stopped, and ends as soon as it begins.
  Which jobs were stopped is noted in stopped.json; such a pending job counts as ended.
- job_supervisor.py, run: all processes of a running job get SIGTERM, and SIGKILL after
  RAY_JOB_STOP_WAIT_TIME_S (3 s). The supervisor reads it from its own environment, which is that of the job's
  runtime_env, so that each job sets the time that its checkpoint takes.
- job_supervisor.py, _get_driver_env_vars: a job gets RAY_ADDRESS and the runtime_env of its cluster. A stage
  may start a Ray of its own, or connect with another runtime_env, so its command runs without them.

Environment: a job has that of the node's Ray and the variables PASSED of the submitter. With sbatch it has
all of them; here everybody who reaches the dashboard can read them. Tokens belong into the environment of
the cluster's nodes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from launch.config import LauncherConfig
from launch.errors import LaunchError
from launch.nodes.stage_queue import Ending, Queue, Request, Status, Unanswered

ANSWER_S = 60.0
"""Time limit of one answer."""
LIVE = frozenset({"PENDING", "RUNNING"})
"""States of a job that has not ended (ray/dashboard/modules/job/common.py, JobStatus)."""
START_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
STOPPED = "stopped.json"
MARGIN_S = 15
"""Seconds between grpoflow's own SIGKILL and Ray's."""
PASSED = (
    "GRPOFLOW_STORE", "GRPOFLOW_REMOTE", "PYTHONPATH", "PYTHONSAFEPATH", "OMP_NUM_THREADS", "XDG_CACHE_HOME",
    "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "MODELSCOPE_CACHE", "MODELSCOPE_ENDPOINT",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "AWS_ENDPOINT_URL",
    "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "SWANLAB_MODE",
)  # fmt: skip
"""Variables of the submitter that a job gets; not one whose value is a URL with a user or password."""
OF_RAY = (
    "RAY_ADDRESS",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_CLIENT_MODE",
    "RAY_LD_PRELOAD_ON_WORKERS",
    "PYTHONBREAKPOINT",
)
"""Variables that Ray sets for a job, and that would tell a stage's program to use the job's cluster."""


class RayQueue(Queue):
    """Jobs of an artifact on the Ray cluster at launcher.ray_address."""

    cluster = "Ray"
    lost_by = "a restart of its head node"

    def __init__(
        self, name: str, logs: Path, launcher: LauncherConfig, resources: Mapping[str, float]
    ) -> None:
        """Also set the resources that the jobs reserve, for messages."""
        super().__init__(name, logs, launcher)
        self.resources = resources
        self.address = address_of(launcher)

    def log(self, number: str) -> Path:
        """Return the file that the job's command writes: ray-N.log."""
        return self.logs / f"ray-{number.rpartition('-')[2]}.log"

    def submit(self, request: Request) -> str:
        """Post the job with the next number; one that exists is a job of the same artifact, and returned."""
        latest = max((attempt for attempt, _ in self._jobs()), default=0)
        number = f"{self.name}-{latest + 1}"
        body = {
            "submission_id": number,
            "entrypoint": entrypoint(request, self.log(number)),
            "runtime_env": {"env_vars": {**passed(request.environment), **stop_time(self.launcher)}},
            **reserved(request.resources),
        }
        answer = ask(self.address, "POST", "jobs/", body)
        if answer.ok or "already exists" in answer.text:
            return number
        reason = (answer.text.strip().splitlines() or [answer.reason])[-1]
        # the head passes a refusal of its agent on as 500
        if answer.status_code < 500 or "status code 400" in answer.text:
            raise LaunchError(f"{self.address}: Ray refuses the job: {reason}; correct launcher.ray")
        raise Unanswered(f"{self.address}: HTTP status {answer.status_code}: {reason}")

    def find(self) -> Status | None:
        """Ask for all jobs of the cluster; one that waits although it was stopped does not count."""
        live = [status for _, shown in self._jobs() if (status := self._status(shown)) is not None]
        return live[0] if live else None

    def look(self, status: Status) -> Status | None:
        """Ask for one job."""
        shown = self._job(status.id)
        return None if shown is None else self._status(shown)

    def cancel(self, status: Status) -> None:
        """Stop a job, and note that it was stopped."""
        answer = ask(self.address, "POST", f"jobs/{status.id}/stop")
        if not answer.ok and answer.status_code != requests.codes.not_found:
            raise Unanswered(f"{self.address}: HTTP status {answer.status_code}")
        with contextlib.suppress(OSError):  # without the note, the next process follows the job to its end
            new = self.logs / f"{STOPPED}.new"
            new.write_text(json.dumps([*self._stopped(), status.id]), encoding="utf-8")
            new.replace(self.logs / STOPPED)

    def ending(self, number: str) -> Ending | None:
        """Ask for the job, which Ray remembers until the cluster ends or somebody deletes it."""
        shown = self._job(number)
        if shown is None:
            return None
        state = str(shown["status"])
        if shown.get("error_type") == START_TIMEOUT:
            seconds = ((shown.get("end_time") or 0) - (shown.get("start_time") or 0)) / 1000
            text = f"found no free {wanted(self.resources)} in {max(0.0, seconds):.0f} s, and Ray ended it"
            return Ending(text, never_began=True)
        if state in LIVE:  # `_status`: it will do nothing
            return Ending("STOPPED before it began", may_pass=False)
        code = shown.get("driver_exit_code")
        details = [f"exit code {code}"] if code else []
        details += [text for text in (_host(shown), _cause(shown)) if text and state == "FAILED"]
        text = state + (f" ({', '.join(details)})" if details else "")
        return Ending(text, succeeded=state == "SUCCEEDED", may_pass=state != "STOPPED")

    def _status(self, shown: Mapping[str, Any]) -> Status | None:
        """Return the status of a job; None if it has ended, or will do nothing because it was stopped."""
        number, state = str(shown["submission_id"]), str(shown["status"])
        if state not in LIVE:
            return None
        was_stopped = number in self._stopped()
        if state == "PENDING":
            why = f"for {wanted(self.resources)}"
            return None if was_stopped else Status(self.cluster, number, state, why)
        return Status(self.cluster, number, state, _host(shown), is_ending=was_stopped)

    def _stopped(self) -> list[str]:
        """Return the ids of jobs that were stopped."""
        with contextlib.suppress(OSError, ValueError):
            return [str(number) for number in json.loads((self.logs / STOPPED).read_text(encoding="utf-8"))]
        return []

    def _job(self, number: str) -> dict[str, Any] | None:
        """Return the description of a job; None if Ray does not know it."""
        answer = ask(self.address, "GET", f"jobs/{number}")
        if answer.status_code == requests.codes.not_found:
            return None
        shown = _json(self.address, answer)
        if not isinstance(shown, dict) or "status" not in shown:
            raise LaunchError(f"{self.address}: its answer is no Ray job; correct launcher.ray_address")
        return {**shown, "submission_id": number}

    def _jobs(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number and description of each job of the artifact, in their order."""
        shown = _json(self.address, ask(self.address, "GET", "jobs/"))
        if not isinstance(shown, list):
            raise LaunchError(f"{self.address}: its answer is no list of jobs; correct launcher.ray_address")
        found = []
        for job in shown:
            name, _, attempt = str(job.get("submission_id") or "").rpartition("-")
            if name == self.name and attempt.isdecimal():
                found.append((int(attempt), job))
        yield from sorted(found, key=lambda job: job[0])


def address_of(launcher: LauncherConfig) -> str:
    """Return launcher.ray_address without a slash at its end; rules refuse launcher=ray without it."""
    return (launcher.ray_address or "").rstrip("/")


def version(address: str) -> str:
    """Return the version of the Ray whose dashboard is at `address`.

    Raises:
        Unanswered: nobody answers.
        LaunchError: it is no dashboard, or refuses this user.
    """
    shown = _json(address, ask(address, "GET", "version"))
    if not isinstance(shown, dict) or "ray_version" not in shown:
        raise LaunchError(f"{address}: is no dashboard of Ray; correct launcher.ray_address")
    return str(shown["ray_version"])


def entrypoint(request: Request, log: Path) -> str:
    """Return the command of a job, which Ray gives to a shell; its output goes to a file that nodes share.

    Ray sets OMP_NUM_THREADS to the reserved CPUs, 1 without any (ray/_private/utils.py,
    set_omp_num_threads_if_unset), which would slow down a stage that only reserves cards.
    """
    unset = [*OF_RAY, *([] if {"CPU"} & {*request.resources} or _threads(request) else ["OMP_NUM_THREADS"])]
    command = ["env", *(word for name in unset for word in ("-u", name)), *request.command]
    directory = shlex.quote(str(request.directory))
    return f"cd {directory} && exec {shlex.join(command)} >> {shlex.quote(str(log))} 2>&1"


def reserved(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return the keys of a submission that reserve resources (common.py, JobSubmitRequest)."""
    names = {"CPU": "entrypoint_num_cpus", "GPU": "entrypoint_num_gpus"}
    body: dict[str, Any] = {key: resources[name] for name, key in names.items() if name in resources}
    if "memory" in resources:
        body["entrypoint_memory"] = int(resources["memory"])
    others = {name: amount for name, amount in resources.items() if name not in (*names, "memory")}
    return {**body, **({"entrypoint_resources": others} if others else {})}


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the submitter that its jobs get."""
    named = {name: environment[name] for name in PASSED if environment.get(name)}
    return {name: value for name, value in named.items() if "@" not in urlsplit(value).netloc}


def stop_time(launcher: LauncherConfig) -> dict[str, str]:
    """Return the variable with the seconds between Ray's SIGTERM and SIGKILL, a whole number."""
    seconds = max(launcher.notice_s, math.ceil(launcher.grace_s) + MARGIN_S)
    return {"RAY_JOB_STOP_WAIT_TIME_S": str(seconds)}


def wanted(resources: Mapping[str, float]) -> str:
    """Return resources for a message, for example `8 NPU, 1 CPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items()) or "worker process"


def ask(address: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> requests.Response:
    """Send a request to the dashboard; return its answer, whatever its HTTP status is.

    Raises:
        Unanswered: nobody answers.
        LaunchError: the dashboard wants another token.
    """
    url = f"{address}/api/{path}"
    try:
        answer = requests.request(
            method, url, json=body, timeout=ANSWER_S, allow_redirects=False, auth=_signature()
        )
    except requests.RequestException as error:
        known = re.search(r"\[Errno -?\d+\] ([^'\")]+)", str(error))
        raise Unanswered(f"{address}: {known[1] if known else type(error).__name__}") from error
    if answer.status_code in (requests.codes.unauthorized, requests.codes.forbidden):
        remedy = "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token of the cluster"
        raise LaunchError(f"{address}: access refused (HTTP status {answer.status_code}); {remedy}")
    return answer


def _json(address: str, answer: requests.Response) -> Any:
    """Return the values of an answer.

    Raises:
        Unanswered: the dashboard, or a proxy before it, has a fault.
        LaunchError: the answer is not JSON.
    """
    if answer.status_code >= 500:
        raise Unanswered(f"{address}: HTTP status {answer.status_code}")
    try:
        answer.raise_for_status()
        return answer.json()
    except (requests.RequestException, ValueError) as error:
        status = f"HTTP status {answer.status_code}"
        remedy = "correct launcher.ray_address"
        raise LaunchError(f"{address}: is no dashboard of Ray ({status}); {remedy}") from error


class _Bearer(requests.auth.AuthBase):
    """Header with a token; unlike a header of the request, it counts more than ~/.netrc."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _signature() -> _Bearer | None:
    """Return the token of the cluster, from where Ray's own clients take it; None if there is none.

    Source: ray/_private/authentication/http_token_authentication.py, authentication_token_setup.py.
    """
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return None
    token = os.environ.get("RAY_AUTH_TOKEN", "").strip()
    if not token:
        path = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            token = Path(path).read_text(encoding="utf-8").strip()
    return _Bearer(token) if token else None


def _threads(request: Request) -> bool:
    """Return True if the submitter has chosen a number of threads."""
    return "OMP_NUM_THREADS" in passed(request.environment)


def _host(shown: Mapping[str, Any]) -> str:
    """Return the address of the node on which a job runs or ran; empty if it has not begun."""
    return urlsplit(str(shown.get("driver_agent_http_address") or "")).hostname or ""


def _cause(shown: Mapping[str, Any]) -> str:
    """Return what Ray says about a failed job, in one line, without the command's own output."""
    lines = [line.strip() for line in str(shown.get("message") or "").splitlines() if line.strip()]
    if shown.get("error_type") == "JOB_ENTRYPOINT_COMMAND_ERROR":
        began = [at for at, line in enumerate(lines) if line.startswith("Running entrypoint for job")]
        lines = lines[began[-1] + 1 :][-1:] if began else []  # of the shell: the command has its own file
    return lines[0].partition(". Full traceback")[0] if lines else ""
