"""Records what the model generates and which weights are sent, for tests of verl's generation.

Python imports this file when it starts, if its directory is on PYTHONPATH. It changes verl's client of
servers and the plugin's transfer of weights as soon as they are imported: each request is written, with its
prompt and tokens, to the file that the variable RECORD names, and the weights of each version to files beside
it, which have the version as another suffix.
"""

import json
import os
import sys
from importlib.machinery import PathFinder

RECORD = "GRPOFLOW_TEST_RECORD"


class Recorded:
    """Finds the modules, and changes them after their import."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in CHANGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            CHANGES[name](module)

        spec.loader.exec_module = execute_and_change
        return spec


def record_requests(module):
    """Record the requests of verl's clients of servers."""
    client = module.LLMServerClient
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
            "logprobs": output.log_probs and list(output.log_probs),
            "version": output.extra_fields.get("global_steps"),
            "sample": sampling_params.get("grpoflow_identity"),
            "temperature": sampling_params["temperature"],
        }
        with open(os.environ[RECORD], "a") as file:
            file.write(json.dumps(line) + "\n")
        return output

    client.generate = generate


def record_weights(module):
    """Record the weights of each version that training sends to servers on other workers."""
    engine = module.RayCheckpointEngine
    original = engine.send_weights

    async def send_weights(self, weights, global_steps=None):
        import torch

        sent = {name: tensor.detach().clone() for name, tensor in weights}
        if self._is_sender:
            torch.save(sent, f"{os.environ[RECORD]}.{global_steps}")
        await original(self, iter(sent.items()), global_steps)

    engine.send_weights = send_weights


CHANGES = {"verl.workers.rollout.llm_server": record_requests, "grpoflow_verl_cpu.weights": record_weights}
if RECORD in os.environ:
    sys.meta_path.insert(0, Recorded)
