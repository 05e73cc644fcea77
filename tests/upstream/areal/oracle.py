"""AReaL's steps in plain torch, from the completions that a run wrote; runs in AReaL's interpreter.

Nothing of AReaL is used. One sequence at a time, float32. Request on stdin: artifact (of grpo), model,
kl_in_reward, correction (largest ratio of rollout.correction=tis, or null), learning_rate, steps, max_tokens.
The answer: of each step the gradient norm, mean reward, ages of its tokens and mean ratio, and the largest
differences of the weights.
"""

import copy
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

LOW, HIGH = 0.2, 0.28


def read_groups(artifact, tokenizer, step, max_tokens):
    """Return the groups of one step: lists of prompt, completion, the version of each token, and reward."""
    groups = defaultdict(list)
    for row in map(json.loads, (artifact / "completions.jsonl").read_text().split("\n")[:-1]):
        if row["step"] == step:
            ids = tokenizer(row["completion"])["input_ids"]
            ids += [tokenizer.eos_token_id] if len(ids) < max_tokens else []  # the end is not written
            versions = [version for version, count in row["versions"] for _ in range(count)]
            assert len(ids) == row["tokens"] == len(versions)
            groups[row["prompt"]].append(
                (tokenizer(row["prompt"])["input_ids"], ids, versions, row["reward"])
            )
    return list(groups.values())


def logprobs(model, prompt, completion):
    logits = model(input_ids=torch.tensor([prompt + completion])).logits[0]
    predicted = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return predicted[torch.arange(len(completion)), torch.tensor(completion)]


def advantages(group):
    rewards = torch.tensor([reward for *_, reward in group])
    return (rewards - rewards.mean()) / (rewards.std() + 1e-5)


def generated(models, prompt, ids, versions):
    """Return the log-probability of each token by the weights that generated it, given all before it."""
    by_version = {version: logprobs(models[version], prompt, ids) for version in set(versions)}
    return torch.stack([by_version[version][i] for i, version in enumerate(versions)])


def train(request, load, tokenizer):
    """Return the trained model, and what happened in each step."""
    model, reference, steps, models = load(), load(), [], []
    optimizer = torch.optim.AdamW(model.parameters(), lr=request["learning_rate"], weight_decay=0.0)
    for step in range(1, request["steps"] + 1):
        models.append(copy.deepcopy(model))  # the weights of version step - 1
        groups = read_groups(Path(request["artifact"]), tokenizer, step, request["max_tokens"])
        tokens = sum(len(ids) for group in groups for _, ids, *_ in group)
        ages, ratios = Counter(), []
        optimizer.zero_grad()
        for group in groups:
            for (prompt, ids, versions, _), advantage in zip(group, advantages(group), strict=True):
                ages.update(step - 1 - version for version in versions)
                new = logprobs(model, prompt, ids)
                with torch.no_grad():  # k1 in the reward of each token; what follows counts, too
                    kl = new - logprobs(reference, prompt, ids)
                    credit = advantage - request["kl_in_reward"] * kl.flip(0).cumsum(0).flip(0)
                    weight = (new - generated(models, prompt, ids, versions)).exp()
                    ratios += weight.tolist()
                    limit = request["correction"]
                    weight = torch.ones_like(weight) if limit is None else weight.clip(max=limit)
                ratio = (new - new.detach()).exp()
                loss = weight * torch.max(-credit * ratio, -credit * ratio.clip(1 - LOW, 1 + HIGH))
                (loss.sum() / tokens).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        rewards = [reward for group in groups for *_, reward in group]
        sizes = sorted(len(group) for group in groups)
        row = {"norm": norm, "reward": sum(rewards) / len(rewards), "groups": sizes, "tokens": tokens}
        steps.append({**row, "ages": ages, "largest_ratio": max(ratios), "smallest_ratio": min(ratios)})
    return model, steps


def largest(one, other):
    return max((one[name].float() - other[name].float()).abs().max().item() for name in one)


if __name__ == "__main__":
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    load = lambda path=request["model"]: AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)  # noqa: E731
    model, steps = train(request, load, AutoTokenizer.from_pretrained(request["model"]))
    made = load(Path(request["artifact"]) / "model").state_dict()
    answer = {"steps": steps, "difference": largest(made, model.state_dict())}
    print(json.dumps({**answer, "moved": largest(made, load().state_dict())}))
