"""Records what the model generates and which weights are sent, for tests of verl's generation.

Python imports this file when it starts, if its directory is on PYTHONPATH. It changes verl's client of
servers and the plugin's transfer of weights as soon as they are imported: each request is written, with its
prompt and tokens, to the file that the variable RECORD names, and the weights of each version to files beside
it, which have the version as another suffix.
"""

import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "hooks"))
from after_import import change_after_import

RECORD = "GRPOFLOW_TEST_RECORD"


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


if RECORD in os.environ:
    change_after_import(
        {"verl.workers.rollout.llm_server": record_requests, "grpoflow_verl_cpu.weights": record_weights}
    )
