"""AReaL's loss with a behaviour weight; runs in AReaL's interpreter.

Request on stdin: for each case the settings of rejection_sampling (or null), and for each token its
log-probabilities `trained` and `sampled`, and its advantage. The settings are sent as to a worker, like
a configuration. The answers: the loss, its gradient by the trained log-probabilities, and how many tokens
AReaL weights.
"""

import json
import sys

import torch
from areal.api.cli_args import RejectionSamplingConfig
from areal.infra.rpc.serialization import deserialize_value, serialize_value
from areal.utils.functional import ppo_actor_loss_fn

if __name__ == "__main__":
    answers = []
    for request in json.load(sys.stdin):
        settings = request["settings"]
        config = RejectionSamplingConfig(**settings) if settings else None
        trained, sampled, advantages = (
            torch.tensor(request[name], dtype=torch.float64) for name in ("trained", "sampled", "advantages")
        )
        trained.requires_grad_()
        loss, statistics = ppo_actor_loss_fn(
            logprobs=trained,
            proximal_logprobs=trained.detach(),
            old_logprobs=sampled,
            advantages=advantages,
            eps_clip=0.2,
            eps_clip_higher=0.28,
            loss_mask=torch.ones(len(trained), dtype=torch.bool),
            rejection_sampling=deserialize_value(serialize_value(config)),
        )
        loss.backward()
        weighted = statistics["behave_mask"].sum().item() if settings else len(trained)
        answers.append({"loss": loss.item(), "gradient": trained.grad.tolist(), "weighted": weighted})
    print(json.dumps(answers))
