"""GRPO steps in plain torch, from the completions that a run of verl wrote; runs in verl's interpreter.

Nothing of verl is used except its checkpoint's files. One sequence at a time, float32. Request on stdin:
artifact (of grpo), model, algorithm, beta, learning_rate, steps, epochs, max_tokens, and correction, if there
is one: kind, level, min, max of rollout.correction, for log-probabilities that shifted/ has shifted. For
completions of several turns: recorded, the file that recorded/ has written, and masked: whether tokens that
the model did not generate are left out of the loss.
The answer: metrics of each step and the largest differences of the weights.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import torch
from prepare import ALPHABET
from shifted.shift import shift
from transformers import AutoModelForCausalLM, AutoTokenizer

CLIP = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "dr_grpo": (0.2, 0.2), "gspo": (3e-4, 4e-4)}
KL_LIMIT = 10.0
"""verl's bound of a token's KL estimate."""


def encode(text):
    return [ALPHABET.index(character) for character in text]


def read_completions(artifact, step, max_tokens):
    """Return the groups of one step: lists of prompt, completion and reward."""
    groups = defaultdict(list)
    for row in map(json.loads, (artifact / "completions.jsonl").read_text().split("\n")[:-1]):
        if row["step"] == step:
            completion = encode(row["completion"])
            completion += [len(ALPHABET)] if len(completion) < max_tokens else []  # the end is not written
            own = [True] * len(completion)
            groups[row["prompt"]].append((encode(row["prompt"]), completion, own, row["reward"]))
    return list(groups.values())


def read_recorded(request, step, tokenizer):
    """Return the groups of one step with several turns, whose reward is the share of digits in the last turn.

    A token is the model's own if a request of this completion has generated it.
    """
    calls, groups = defaultdict(list), defaultdict(list)
    for line in map(json.loads, Path(request["recorded"]).read_text().splitlines()):
        if line["version"] == step - 1 and line["temperature"] > 0:
            calls[line["request"]].append(line)
    for turns in calls.values():
        first, last = turns[0], turns[-1]
        start, whole = len(first["prompt"]), last["prompt"] + last["tokens"]
        own = [False] * len(whole)
        for turn in turns:
            begin, end = len(turn["prompt"]), len(turn["prompt"]) + len(turn["tokens"])
            assert whole[:end] == turn["prompt"] + turn["tokens"]  # what was generated stays as it is
            own[begin:end] = [True] * (end - begin)
        limit = start + request["max_tokens"]
        text = tokenizer.decode(whole[len(last["prompt"]) : limit], skip_special_tokens=True)
        reward = sum(map(str.isdigit, text)) / max(1, len(text))
        mine = own[start:limit] if request["masked"] else [True] * len(whole[start:limit])
        groups[last["sample"][0]].append((whole[:start], whole[start:limit], mine, reward))
    return list(groups.values())


def with_advantages(groups, algorithm):
    for group in groups:
        rewards = torch.tensor([reward for *_, reward in group])
        scale = 1.0 if algorithm == "dr_grpo" else rewards.std() + 1e-6
        advantages = (rewards - rewards.mean()) / scale
        for (prompt, completion, own, _), advantage in zip(group, advantages, strict=True):
            yield prompt, completion, torch.tensor(own), advantage


def logprobs(model, prompt, completion):
    logits = model(input_ids=torch.tensor([prompt + completion])).logits[0]
    predicted = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return predicted[torch.arange(len(completion)), torch.tensor(completion)]


def objective(new, old, advantage, algorithm):
    """Return the loss of each token."""
    low, high = CLIP[algorithm]
    log_ratio = new - old
    if algorithm == "gspo":
        log_ratio = log_ratio.mean().detach() + new - new.detach()
    ratio = log_ratio.exp()
    return -torch.min(ratio * advantage, ratio.clip(1 - low, 1 + high) * advantage)


def corrected(completion, correction):
    """Return the weight of each token's loss by rollout.correction, and which tokens are kept."""
    ratio = torch.ones(len(completion))
    if correction is None:
        return ratio, ratio.bool()
    logs = -torch.tensor([shift(token) for token in completion])  # trained less sampled
    if correction["level"] == "sequence":
        logs = logs.sum().expand(len(completion))
    ratio = logs.exp()
    is_inside = (ratio >= correction["min"]) & (ratio <= correction["max"])
    return ratio.clip(max=correction["max"]), is_inside | (correction["kind"] == "tis")


def weight(kept, rows, algorithm, max_tokens):
    """Return the factor of a completion's summed token losses in the loss of the batch; `kept`: its tokens.

    verl's average over all tokens also counts those that a correction leaves out.
    """
    if algorithm == "dapo":
        return 1 / sum(int(own.sum()) for _, _, own, _ in rows)
    length = max_tokens if algorithm == "dr_grpo" else max(1, kept)
    return 1 / (length * len(rows))


def update(model, reference, optimizer, rows, old, request):
    """Make one optimizer step; return its loss, its KL divergence and its gradient norm."""
    optimizer.zero_grad()
    total, total_kl = 0.0, 0.0
    for row, old_row in zip(rows, old, strict=True):
        prompt, completion, own, advantage = row
        new = logprobs(model, prompt, completion)
        with torch.no_grad():
            fixed = logprobs(reference, prompt, completion)
        distance = fixed - new
        ratio, kept = corrected(completion, request.get("correction"))
        kept = kept & own
        factor = weight(int(kept.sum()), rows, request["algorithm"], request["max_tokens"])
        loss = (objective(new, old_row, advantage, request["algorithm"]) * ratio)[kept].sum() * factor
        kl = (distance.exp() - distance - 1).clip(max=KL_LIMIT)[kept].sum() * factor
        (loss + request["beta"] * kl).backward()
        total, total_kl = total + loss.item(), total_kl + kl.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
    optimizer.step()
    return total, total_kl, norm


def train(request, load):
    """Return the trained model and the metrics of each step."""
    model, reference = load(), load()
    optimizer = torch.optim.AdamW(model.parameters(), lr=request["learning_rate"], weight_decay=0.0)
    steps = []
    for step in range(1, request["steps"] + 1):
        if "recorded" in request:
            groups = read_recorded(request, step, AutoTokenizer.from_pretrained(request["model"]))
        else:
            groups = read_completions(Path(request["artifact"]), step, request["max_tokens"])
        rows = list(with_advantages(groups, request["algorithm"]))
        with torch.no_grad():
            old = [logprobs(model, prompt, completion) for prompt, completion, *_ in rows]
        updates = [update(model, reference, optimizer, rows, old, request) for _ in range(request["epochs"])]
        rewards = [reward for group in groups for *_, reward in group]
        means = [sum(values) / len(values) for values in zip(*updates, strict=True)]
        steps.append(dict(zip(("loss", "kl", "norm"), means, strict=True)))
        steps[-1]["reward"] = sum(rewards) / len(rewards)
        pairs = [corrected(completion, request.get("correction")) for _, completion, *_ in rows]
        steps[-1]["weight"] = torch.cat([ratio for ratio, _ in pairs]).mean().item()
        steps[-1]["rejected"] = 1 - torch.cat([kept for _, kept in pairs]).float().mean().item()
    return model, steps


def read_shards(artifact):
    """Return the weights of all shards of a run."""
    files = sorted((artifact / "actor").glob("model_world_size_*"))
    shards = [torch.load(file, weights_only=False) for file in files]
    return {
        name: torch.cat([shard[name].to_local() for shard in shards]) if len(shards) > 1 else full(value)
        for name, value in shards[0].items()
    }


def full(value):
    return value.to_local() if hasattr(value, "to_local") else value


def largest(one, other):
    return max((one[name] - other[name]).abs().max().item() for name in one)


if __name__ == "__main__":
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    load = lambda: AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.float32)  # noqa: E731
    model, steps = train(request, load)
    weights = read_shards(Path(request["artifact"]))
    print(
        json.dumps(
            {
                "steps": steps,
                "difference": largest(weights, model.state_dict()),
                "moved": largest(weights, load().state_dict()),
            }
        )
    )
