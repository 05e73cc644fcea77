"""Reproducible sampling of completions with a transformers model.

The completions of a block have the same prompt and are computed as one batch, so they do not depend on the
requests that arrive at the same time. Each has its own random generator, seeded by its identity.

Shape suffixes: B completions of a block, V vocabulary.
"""
# mypy: ignore-errors

import hashlib
import json
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Settings:
    """Sampling settings of a request: temperature 0 is greedy, top_k of 0 or less means all tokens."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    stop_tokens: tuple[int, ...] = ()
    """Further tokens that end a completion."""


def make_generator(*identity):
    """Return a generator that depends only on the identity, a sequence of JSON values."""
    digest = hashlib.sha256(json.dumps(identity).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))


def log_distribution(logits_BV, settings):
    """Return the log-probabilities of the distribution to sample from: temperature, top_k, then top_p.

    They are vLLM's processed_logprobs, verl's default (verl/workers/config/rollout.py logprobs_mode).
    """
    if settings.temperature == 0:
        return logits_BV.log_softmax(-1)
    logits_BV = logits_BV / settings.temperature
    if 0 < settings.top_k < logits_BV.shape[-1]:
        least_B1 = logits_BV.topk(settings.top_k).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)
    if settings.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(descending=True, stable=True)
        probabilities_BV = sorted_BV.softmax(-1)
        excluded_BV = probabilities_BV.cumsum(-1) - probabilities_BV >= settings.top_p
        excluded_BV[:, 0] = False
        logits_BV = logits_BV.masked_fill(excluded_BV.scatter(1, order_BV, excluded_BV), -torch.inf)
    return logits_BV.log_softmax(-1)


def choose(logprobs_BV, uniform_B, temperature):
    """Return a token per row: the most probable, or the one at a quantile of the distribution."""
    if temperature == 0:
        return logprobs_BV.argmax(-1)
    cumulative_BV = logprobs_BV.double().exp().cumsum(-1)
    quantile_B1 = uniform_B.double().unsqueeze(1) * cumulative_BV[:, -1:]
    return torch.searchsorted(cumulative_BV, quantile_B1, right=True).squeeze(1)


@torch.inference_mode()
def sample_block(model, prompt, generators, settings, stop_tokens, num_tokens):
    """Return (tokens, log-probabilities) of one completion per generator.

    A completion ends with a token of `stop_tokens`, which is a part of it, or after max_tokens. Only the
    first `num_tokens` ids are sampled, those of the tokenizer, as by verl's server: rows of a padded
    vocabulary have logits, too (monkey_patch_compute_logits in workers/rollout/vllm_rollout/utils.py).
    """
    uniform = torch.stack([torch.rand(settings.max_tokens, generator=each) for each in generators])
    stop, running_B = torch.tensor(sorted(stop_tokens)), torch.ones(len(generators), dtype=torch.bool)
    inputs, cache = torch.tensor([prompt] * len(generators)), None
    tokens, logprobs = [], []
    while len(tokens) < settings.max_tokens and running_B.any():
        output = model(input_ids=inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logprobs_BV = log_distribution(output.logits[:, -1, :num_tokens].float(), settings)
        token_B = choose(logprobs_BV, uniform[:, len(tokens)], settings.temperature)
        tokens.append(token_B)
        logprobs.append(logprobs_BV.gather(1, token_B.unsqueeze(1)).squeeze(1))
        running_B &= ~torch.isin(token_B, stop)
        inputs, cache = token_B.unsqueeze(1), output.past_key_values
    rows = zip(torch.stack(tokens, 1).tolist(), torch.stack(logprobs, 1).tolist(), strict=True)
    return [_cut(*row, stop_tokens) for row in rows]


def _cut(tokens, logprobs, stop_tokens):
    """Cut both lists after the first stop token."""
    length = next((i + 1 for i, token in enumerate(tokens) if token in stop_tokens), len(tokens))
    return tokens[:length], logprobs[:length]
