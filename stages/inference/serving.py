"""Greedy answers of an exported model by other programs, and the command that serves it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stages.base.errors import InputError
from stages.base.files import read_object
from stages.base.redact import redact
from stages.fetch.config import DatasetConfig
from stages.fetch.records import Row
from stages.grpo.config import RolloutConfig
from stages.inference import arguments
from stages.models.config import ModelConfig
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.source import splits, written_rows
from stages.tokenize.text import columns

ASK = Path(__file__).parent / "programs" / "ask.py"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
BATCH = 64
"""Questions that a program answers at once (ask.py), or requests of a server at a time."""
ANSWER_S = 600.0
"""Time limit of a server's answer."""
SHOWN = 400
"""Characters of another program's error that are shown."""
SERVER = "vllm.entrypoints.openai.api_server"
"""Module of `vllm serve`; started as a module because that command needs a distribution named vllm, and the
one for CPUs has another name."""


@dataclass(frozen=True)
class Answered:
    """Answers, and by what they were computed."""

    answers: list[str]
    program: str
    """Name with version and type, or the address of a server."""


def held_out(fetched: Path, tokenized: Path, dataset: DatasetConfig, config: TokenizeConfig) -> list[Row]:
    """Return the held-out rows that tokenize has not dropped."""
    _, test = splits(fetched, dataset, columns(dataset, config))
    return list(written_rows(test, tokenized / "test.mindrecord"))


def dtype_of(directory: Path) -> str:
    """Return the type of a model directory's weights, by its config.json."""
    config = read_object(directory / "config.json")
    return str(config.get("dtype") or config.get("torch_dtype") or "float32")


def ask_program(
    command: Sequence[str], environment: Mapping[str, str], program: str, directory: Path,
    questions: Sequence[str], model: ModelConfig, rollout: RolloutConfig, longest: int, dtype: str,
    memory_share: float | None,
) -> Answered:  # fmt: skip
    """Answer through a directory's chat template by a program in an interpreter of its own.

    Args:
        command: the interpreter, with what has to come before it.
        environment: its variables.
        program: transformers or vllm.
        directory: the exported model.
        questions: texts.
        model: shape of the model.
        rollout: limits of the answers.
        longest: tokens of the longest prompt, without the words that a template adds.
        dtype: type to compute in.
        memory_share: share of a card's memory, or on a CPU of the machine's, that vLLM may take.

    Raises:
        InputError: the program fails.
    """
    length = min(model.max_position_embeddings, longest + rollout.max_tokens + TEMPLATE_TOKENS)
    request = {
        "program": program, "directory": str(directory), "questions": list(questions), "dtype": dtype,
        "max_tokens": rollout.max_tokens, "min_tokens": rollout.min_tokens,
        "repetition_penalty": rollout.repetition_penalty, "max_model_len": length,
        "memory_share": memory_share, "card_share": arguments.CARD_SHARE,
        "cache_bytes": arguments.cache_bytes(model, BATCH, length),
    }  # fmt: skip
    line = [*command, str(ASK)]
    try:
        done = subprocess.run(
            line, input=json.dumps(request), capture_output=True, text=True, env=dict(environment), cwd="/"
        )
    except OSError as error:
        raise InputError(line[0], None, f"can't be started: {error.strerror}", "give --python") from error
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        cause = (done.stderr.strip() or "no output").splitlines()[-1][-SHOWN:]
        rule = f"does not serve with {program}: {redact(cause)}"
        raise InputError(directory, None, rule, f"see the error of {shlex.join(line)}")
    made = json.loads(lines[-1])
    return Answered(list(made["answers"]), f"{program} {made['version']} in {made['dtype']}")


TEMPLATE_TOKENS = 256
"""Tokens that a chat template may add to a prompt."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirections, which would carry the key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask_server(
    url: str, questions: Sequence[str], rollout: RolloutConfig, key: str | None, model: str | None = None
) -> Answered:
    """Answer by a running server of OpenAI's chat interface.

    Args:
        url: http://HOST:PORT, with or without /v1.
        questions: texts.
        rollout: limits of the answers.
        key: sent as bearer token; it is never shown.
        model: name of the model at the server; None: the only one.

    Raises:
        InputError: the server refuses or does not answer.
    """
    base = url.rstrip("/").removesuffix("/v1") + "/v1"
    opener = _opener(url)
    if model is None:
        listed = [str(each["id"]) for each in _request(opener, f"{base}/models", None, key)["data"]]
        if len(listed) != 1:
            rule = f"serves {len(listed)} models: {', '.join(listed)}"
            raise InputError(url, None, rule, "name one with --served-model")
        model = listed[0]
    limits: dict[str, Any] = {"model": model, "temperature": 0.0, "max_tokens": rollout.max_tokens}
    if rollout.min_tokens:  # vLLM has these; another server may refuse them
        limits["min_tokens"] = rollout.min_tokens
    if rollout.repetition_penalty != 1:
        limits["repetition_penalty"] = rollout.repetition_penalty

    def ask(question: str) -> str:
        body = {**limits, "messages": [{"role": "user", "content": question}]}
        made = _request(opener, f"{base}/chat/completions", body, key)
        return str(made["choices"][0]["message"]["content"] or "")

    with ThreadPoolExecutor(BATCH) as pool:
        return Answered(list(pool.map(ask, questions)), f"{model} at {url}")


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Return an opener that follows no redirection, and asks no proxy for this machine's own addresses."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if urlsplit(url).hostname in LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _request(opener: urllib.request.OpenerDirector, url: str, body: Any, key: str | None) -> Any:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        with opener.open(urllib.request.Request(url, data, headers), timeout=ANSWER_S) as answer:  # noqa: S310
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read(SHOWN).decode(errors="replace").replace(key or "\0", "…")
        rule = f"answers with status {error.code}: {redact(' '.join(text.split()))}"
        raise InputError(url, None, rule, "see the server's log") from error
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            url, None, f"does not answer: {error}", "start the server, or correct --url"
        ) from error


def serve_command(
    python: str, directory: Path, name: str, *, host: str, port: int, on_cpu: bool, dtype: str | None,
    tensor_parallel: int, more: Sequence[str] = (),
) -> tuple[dict[str, str], list[str]]:  # fmt: skip
    """Return the variables and the command by which vLLM serves a model; `more` are its further options."""
    variables = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    options: dict[str, object] = {
        "model": os.path.abspath(directory), "served-model-name": name, "host": host, "port": port,
        "dtype": dtype or (dtype_of(directory) if on_cpu else "auto"),
    }  # fmt: skip
    if tensor_parallel > 1:
        options["tensor-parallel-size"] = tensor_parallel
    words = [python, "-m", SERVER]
    words += [text for key, value in options.items() for text in (f"--{key}", str(value))]
    if on_cpu:  # vLLM would take nine tenths of the memory, and compile for a minute
        variables["VLLM_CPU_KVCACHE_SPACE"] = "4"
        words.append("--enforce-eager")
    return variables, [*words, *more]
