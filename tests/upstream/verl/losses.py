"""Losses and advantages by verl's own functions; runs in verl's interpreter.

Request on stdin: a list of objects, each with the rendered sections `actor` and `algorithm`, a `batch`
(logprob, entropy, old, reference, mask [B, T], advantage [B, 1]), and `rewards` and `lengths` [P, G]. The
answer: the names of all losses and estimators, and for each object the loss, its gradients of
log-probabilities and entropies [B, T], and the advantages [P, G].
"""

import json
import sys
from dataclasses import fields

import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils import tensordict_utils
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss


def actor_config(section):
    known = {field.name for field in fields(ActorConfig)} - {"optim", "checkpoint"}
    values = {key: value for key, value in section.items() if key in known}
    return ActorConfig(
        **{**values, "policy_loss": PolicyLossConfig(**section["policy_loss"]), "rollout_n": 1}
    )


def flat(rows, mask):
    """Return what the model gives for each token: those before the answer's, then one that is not used."""
    parts = [torch.cat([row[keep], torch.zeros(1)]) for row, keep in zip(rows, mask.bool(), strict=True)]
    return torch.cat(parts).requires_grad_()


def unflat(values, mask):
    result, start = torch.zeros(mask.shape), 0
    for row, keep in zip(result, mask.bool(), strict=True):
        count = int(keep.sum())
        row[:count] = values[start : start + count]
        start += count + 1
    return result.tolist()


def loss(actor, batch):
    tensors = {name: torch.tensor(rows) for name, rows in batch.items()}
    mask, entropy_coeff = tensors["mask"], actor["entropy_coeff"]
    B, T = mask.shape
    data = {
        "prompts": torch.ones(B, 1), "responses": torch.ones(B, T), "response_mask": mask,
        "attention_mask": torch.cat([torch.ones(B, 1), mask], 1).long(), "old_log_probs": tensors["old"],
        "advantages": tensors["advantage"].expand(B, T) * mask, "ref_log_prob": tensors["reference"],
    }  # fmt: skip
    data = TensorDict(data, batch_size=B)
    sizes = {"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": B}
    tensordict_utils.assign_non_tensor(data, **sizes)
    given = {"log_probs": flat(tensors["logprob"], mask)}
    if entropy_coeff != 0.0:  # as trainer_base.py, calculate_entropy
        given["entropy"] = flat(tensors["entropy"], mask)
    value, _ = ppo_loss(actor_config(actor), given, data)
    value.backward()
    gradients = [unflat(given[key].grad, mask) if key in given else None for key in ("log_probs", "entropy")]
    return value.item(), *gradients


def advantages(algorithm, rewards, lengths):
    rewards, lengths = torch.tensor(rewards), torch.tensor(lengths)
    P, G = rewards.shape
    mask = (torch.arange(int(lengths.max())) < lengths.reshape(-1, 1)).float()
    scores = torch.zeros(mask.shape)
    scores[torch.arange(P * G), lengths.reshape(-1) - 1] = rewards.reshape(-1)
    data = DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={"uid": np.array([str(row // G) for row in range(P * G)], dtype=object)},
    )
    keys = [f"{row // G}_{row % G}_0" for row in range(P * G)]
    config = OmegaConf.create({"gamma": 1.0, "lam": 1.0, **algorithm})
    done = compute_advantage_for_multi_trajectories(
        data, batch_keys=keys, adv_estimator=config.adv_estimator, num_repeat=G,
        norm_adv_by_std_in_grpo=config.norm_adv_by_std_in_grpo, config=config,
    )  # fmt: skip
    of_tokens = done.batch["advantages"]
    assert ((of_tokens == of_tokens[:, :1]) | (mask == 0)).all()  # one for all tokens of a completion
    return of_tokens[:, 0].reshape(P, G).tolist()


def answer(request):
    value, of_logprob, of_entropy = loss(request["actor"], request["batch"])
    values = advantages(request["algorithm"], request["rewards"], request["lengths"])
    return {"loss": value, "of_logprob": of_logprob, "of_entropy": of_entropy, "advantages": values}


if __name__ == "__main__":
    torch.set_num_threads(1)
    answers = [answer(request) for request in json.load(sys.stdin)]
    names = {"losses": sorted(POLICY_LOSS_REGISTRY), "estimators": sorted(ADV_ESTIMATOR_REGISTRY)}
    print(json.dumps({"answers": answers, **names}))
