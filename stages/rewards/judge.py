"""The reward `judge`: another language model reads a completion and gives it a score.

The model is asked over HTTP, as OpenAI's chat completions, which vLLM, SGLang and most services offer. Only
the standard library is used, because interpreters of engines get a copy of this file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from stages.base.errors import InputError
from stages.base.redact import HIDDEN
from stages.rewards.config import PLACEHOLDER, JudgeConfig
from stages.rewards.process import Batch, Failure, Outcome, Scored

LARGEST_REPLY = 4 << 20
"""Bytes of an answer of the service."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
"""Wait before the first repetition of a request, which doubles each time, and its limit."""
FINAL = (401, 403, 404, 405)
"""HTTP statuses that no other request to the same address would avoid."""
REPEATED = (408, 409, 425, 429, 500, 502, 503, 504, 529)
"""HTTP statuses after which the same request may succeed."""
MOST_ANSWERS = 20_000
"""Answers that are kept in memory."""
Usage = defaultdict[str, float]
"""What asking took: name of a metric -> amount."""


def judge(config: JudgeConfig, batch: Batch) -> Scored:
    """Return the scores of all completions, from 0.0 to 1.0, and what asking for them took.

    Equal requests are made once. A completion for which the service gives no usable answer is a failure.

    Raises:
        InputError: the service refuses every request, for example because of the key or the model's name; or
            a column that the template names does not exist.
    """
    return _judge_of(config).score(batch)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: it would send the key to another place."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage,
        newurl: str,
    ) -> None:  # fmt: skip
        """Return no request, which makes the status an error."""


OPENER = urllib.request.build_opener(_NoRedirect)
OPENER_HERE = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
"""Asks no proxy, for addresses of this machine."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _FinalError(Exception):
    """The service would refuse any other request, too."""


class _NoAnswerError(Exception):
    """A request has no usable answer."""

    def __init__(self, message: str, is_late: bool = False, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.is_late, self.wait_s = is_late, wait_s


class Judge:
    """A service with its limit of requests at the same time, and the answers that it gave before."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._url = config.url.rstrip("/") + "/chat/completions"
        self._opener = OPENER_HERE if urlsplit(config.url).hostname in LOOPBACK else OPENER
        self._running = threading.BoundedSemaphore(config.concurrency)
        self._lock = threading.Lock()
        self._answers = dict[str, Future[str]]()

    def score(self, batch: Batch) -> Scored:
        """Return what `judge` returns."""
        if missing := [name for name in self._config.columns if name not in batch.columns]:
            known = ", ".join(batch.columns) or "none"
            rule = f"names {', '.join(missing)}, for which there is no column"
            raise InputError("reward.judge.prompt", None, rule, f"name one that there is: {known}")
        usage = Usage(float)
        texts = [self._request(batch, row) for row in range(len(batch))]
        with ThreadPoolExecutor(min(self._config.concurrency, len(batch)) or 1) as pool:
            outcomes = list(pool.map(lambda text: self._outcome(text, usage), texts))
        return Scored(outcomes, usage=dict(usage))

    def _request(self, batch: Batch, row: int) -> str:
        """Return the text of a request about one completion. What replaces a name is not searched again."""
        values = {name: batch.columns[name][row] for name in self._config.columns}
        values |= {"completion": batch.completions[row], "solution": batch.solutions[row]}
        values |= {"prompt": batch.columns["prompts"][row]} if "prompts" in batch.columns else {}
        return PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), self._config.prompt)

    def _outcome(self, text: str, usage: Usage) -> Outcome:
        """Return the score of one completion, and add what it took to `usage`."""
        try:
            return self._read(self._answer(text, usage))
        except _NoAnswerError as error:
            return Failure(str(error), is_late=error.is_late)
        except _FinalError as error:
            remedy = "check reward.judge.url, model and key_variable"
            raise InputError("reward.judge.url", self._config.url, str(error), remedy) from error

    def _read(self, answer: str) -> float:
        """Return the score in an answer, as a share of score_range."""
        scores = list(re.finditer(self._config.score_pattern, answer))
        if not scores:
            raise _NoAnswerError(f"the judge's answer has no score: {_end(answer)!r}")
        low, high = self._config.score_range
        try:
            value = (float(scores[-1][1]) - low) / (high - low)
        except (TypeError, ValueError) as error:
            raise _NoAnswerError(f"the judge's score {scores[-1][1]!r} is no number") from error
        if not 0 <= value <= 1:
            raise _NoAnswerError(f"the judge's score {scores[-1][1]} is not within {low:g} and {high:g}")
        return value

    def _answer(self, text: str, usage: Usage) -> str:
        """Return the answer to a request: one that is known, one that is being asked for, or a new one."""
        body = self._body(text)
        key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        with self._lock:
            known = self._answers.get(key)
            if known is None:
                future = self._answers[key] = Future[str]()
                if len(self._answers) > MOST_ANSWERS:
                    del self._answers[next(iter(self._answers))]
        if known is not None:
            answer = known.result()
            self._count(usage, judge_cached=1)
            return answer
        try:
            stored = self._stored(key)
            answer = self._fetch(body, usage) if stored is None else stored
            if stored is None:
                self._read(answer)  # one without a score is not kept
                self._store(key, answer)
            else:
                self._count(usage, judge_cached=1)
        except BaseException as error:
            with self._lock:
                self._answers.pop(key, None)  # it may be asked for again
            future.set_exception(error)
            raise
        future.set_result(answer)
        return answer

    def _body(self, text: str) -> dict[str, Any]:
        config = self._config
        body: dict[str, Any] = {
            "model": config.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": config.temperature,
        }
        if config.max_tokens is not None:
            body["max_tokens"] = config.max_tokens
        return {**body, **config.body}

    def _fetch(self, body: Mapping[str, Any], usage: Usage) -> str:
        """Ask the service, again after errors that may pass."""
        wait_s = FIRST_WAIT_S
        for attempt in range(self._config.retries + 1):
            try:
                with self._running:
                    self._count(usage, judge_requests=1)
                    reply = self._send(json.dumps(body).encode())
                return self._content(reply, usage)
            except _NoAnswerError as error:
                if attempt == self._config.retries or error.wait_s is None:
                    raise
                time.sleep(min(LONGEST_WAIT_S, max(wait_s, error.wait_s)) * random.uniform(0.8, 1.2))  # noqa: S311
                wait_s *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _send(self, data: bytes) -> bytes:
        """Send one request; return the body of a successful reply."""
        headers = {"Content-Type": "application/json", "User-Agent": "grpoflow"}
        key = self._key()
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self._url, data, headers, method="POST")  # noqa: S310  checked by plan
        deadline = time.monotonic() + self._config.timeout_s
        try:
            with self._opener.open(request, timeout=self._config.timeout_s) as response:
                return self._received(response, deadline)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error, key) from None
        except (OSError, HTTPException) as error:  # URLError is one
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise self._late() from None
            message = f"the judge cannot be reached: {type(reason).__name__}: {reason}"
            raise _NoAnswerError(message, wait_s=0.0) from None

    def _received(self, response: HTTPResponse, deadline: float) -> bytes:
        """Return the body; a server that sends a byte now and then keeps no limit of a socket."""
        data = bytearray()
        while block := response.read1(1 << 16):
            data += block
            if time.monotonic() > deadline:
                raise self._late()
            if len(data) > LARGEST_REPLY:
                raise _NoAnswerError(f"the judge's reply is longer than {LARGEST_REPLY >> 20} MiB")
        return bytes(data)

    def _late(self) -> _NoAnswerError:
        return _NoAnswerError(f"no answer of the judge after {self._config.timeout_s:g} s", True, 0.0)

    def _refusal(self, error: urllib.error.HTTPError, key: str | None) -> Exception:
        """Return what an HTTP status means. Some services repeat the key in their message."""
        data = b""
        with contextlib.suppress(OSError, HTTPException):
            data = error.read(2000)
        text = " ".join(data.decode(errors="replace").split())
        text = (text.replace(key, HIDDEN) if key else text)[:300]
        message = f"the judge answers with HTTP status {error.code}: {text}"
        if error.code in FINAL or 300 <= error.code < 400:
            return _FinalError(message)
        if error.code not in REPEATED:  # the request itself, for example its length
            return _NoAnswerError(message)
        after = error.headers.get("Retry-After", "")
        return _NoAnswerError(message, wait_s=float(after) if after.isdecimal() else 0.0)

    def _key(self) -> str | None:
        """Return the key of the service, which stays in the environment."""
        name = self._config.key_variable
        if name is None:
            return None
        if key := os.environ.get(name, "").strip():
            return key
        rule = "names an environment variable that is not set where rewards are computed"
        raise InputError("reward.judge.key_variable", name, rule, "export it on this machine")

    def _content(self, reply: bytes, usage: Usage) -> str:
        """Return the text of the answer in a reply, and count its tokens."""
        try:
            values = json.loads(reply)
            choice = values["choices"][0]
            text = choice["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            shown = reply[:200].decode(errors="replace")
            raise _NoAnswerError(f"the judge's reply is no chat completion: {shown!r}") from error
        counted = values.get("usage") or {}
        read, written = (int(counted.get(f"{part}_tokens") or 0) for part in ("prompt", "completion"))
        cost = (read * self._config.prompt_price + written * self._config.completion_price) / 1e6
        self._count(usage, judge_prompt_tokens=read, judge_completion_tokens=written)
        if cost:
            self._count(usage, judge_cost=cost)
        if not isinstance(text, str):  # a reasoning model that has not come to an end
            reason = f"finish_reason={choice.get('finish_reason')}"
            raise _NoAnswerError(f"the judge's answer has no text ({reason}): raise reward.judge.max_tokens")
        return text

    def _count(self, usage: Usage, **amounts: float) -> None:
        with self._lock:
            for name, amount in amounts.items():
                usage[name] += amount

    def _file(self, key: str) -> Path | None:
        directory = self._config.cache
        return None if directory is None else Path(directory).expanduser() / key[:2] / f"{key}.json"

    def _stored(self, key: str) -> str | None:
        """Return an answer of the cache; a damaged file counts as none."""
        if (file := self._file(key)) is None:
            return None
        try:
            answer = json.loads(file.read_text(encoding="utf-8"))["answer"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return answer if isinstance(answer, str) else None

    def _store(self, key: str, answer: str) -> None:
        """Keep an answer; a cache that cannot be written costs requests, but no run."""
        if (file := self._file(key)) is None:
            return
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump({"answer": answer}, stream)
            os.replace(temporary, file)


def _end(text: str) -> str:
    return text if len(text) <= 200 else "…" + text[-200:]


_JUDGES = dict[str, Judge]()
"""The judges of this process, by their settings."""


def _judge_of(config: JudgeConfig) -> Judge:
    return _JUDGES.setdefault(json.dumps(asdict(config), sort_keys=True, default=str), Judge(config))
