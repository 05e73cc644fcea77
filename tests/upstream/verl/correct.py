"""Weights and masks by verl's own correction; runs in verl's interpreter.

Request on stdin: settings (of algorithm.rollout_correction), trained and sampled (log-probabilities of
tokens), mask (1 for tokens of the completion). The answer: weights, kept.
"""

import json
import sys

import torch
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

request = json.load(sys.stdin)
trained, sampled, mask = (torch.tensor(request[name]) for name in ("trained", "sampled", "mask"))
answers = []
for settings in request["settings"]:
    weights, kept, _ = compute_rollout_correction_and_rejection_mask(trained, sampled, mask, **settings)
    weights = weights.batch["rollout_is_weights"]
    answers.append({"weights": weights.tolist(), "kept": kept.tolist()})
print(json.dumps(answers))
