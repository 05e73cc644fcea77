"""Records what the model generates, for tests of completions with several turns.

Python imports this file when it starts, if its directory is on PYTHONPATH. It changes verl's client of
servers as soon as that is imported: each request is written, with its prompt and tokens, to the file that the
variable RECORD names.
"""

import json
import os
import sys
from importlib.machinery import PathFinder

RECORD = "GRPOFLOW_TEST_RECORD"


class RecordedClient:
    """Finds verl's module, and changes it after its import."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "verl.workers.rollout.llm_server":
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            change(module.LLMServerClient)

        spec.loader.exec_module = execute_and_change
        return spec


def change(client):
    """Record the requests of a class of clients."""
    original = client.generate

    async def generate(self, request_id, *, prompt_ids, sampling_params, **kwargs):
        given = list(prompt_ids)
        output = await original(
            self, request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, **kwargs
        )
        line = {
            "request": request_id,
            "prompt": given,
            "tokens": list(output.token_ids),
            "version": output.extra_fields.get("global_steps"),
            "sample": sampling_params.get("grpoflow_identity"),
            "temperature": sampling_params["temperature"],
        }
        with open(os.environ[RECORD], "a") as file:
            file.write(json.dumps(line) + "\n")
        return output

    client.generate = generate


if RECORD in os.environ:
    sys.meta_path.insert(0, RecordedClient)
