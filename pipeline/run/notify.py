"""Webhook notification at the end of runs and sweeps, if GRPOFLOW_WEBHOOK contains an address.

The address is a secret, since anyone who has it can post. It is read from the environment only, removed from
it before a stage starts, and never written to a manifest, a log or an error message.
"""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from pipeline.terminal import say

URL, BODY = "GRPOFLOW_WEBHOOK", "GRPOFLOW_WEBHOOK_BODY"
TIMEOUT_S = 10.0
_address = os.environ.pop(URL, None)


def notify(what: str, name: str, state: str, **more: Any) -> None:
    """Post the end of a run or sweep; a failure to do so is only a warning."""
    if _address is None:
        return
    import requests  # takes 60 ms, and only runs with a webhook need it

    values = {"what": what, "id": name, "state": state, "host": socket.gethostname(), **more}
    try:
        answer = requests.post(_address, json=body(values), timeout=TIMEOUT_S)
        problem = None if answer.ok else f"HTTP status {answer.status_code}"
    except (requests.RequestException, ValueError) as error:
        problem = type(error).__name__  # its text would contain the address
    if problem is not None:
        say(f"warning: the webhook of {URL} was not notified: {problem}", stderr=True)


def sentence(values: Mapping[str, Any]) -> str:
    """Return the notification as one sentence."""
    result = values.get("result") or {}
    parts = [f"{values['what']} {values['id']} on {values['host']}: {values['state']}"]
    parts += [
        f"{key} {result[key]:.3f}" for key in ("accuracy_sft", "accuracy_grpo", "gain") if key in result
    ]
    parts += [str(values["message"])] if values.get("message") else []
    return ", ".join(parts)


def body(values: Mapping[str, Any]) -> Any:
    """Return the posted JSON: all values and `text`, or GRPOFLOW_WEBHOOK_BODY with {text} replaced.

    Raises:
        ValueError: GRPOFLOW_WEBHOOK_BODY is not valid JSON.
    """
    text, template = sentence(values), os.environ.get(BODY)
    if template is None:
        return {"text": text, **values}
    return json.loads(template.replace("{text}", json.dumps(text)[1:-1]))  # escaped, without quotation marks
