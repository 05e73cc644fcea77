"""The weights with which recorded requests were answered; runs in verl's interpreter.

Request on stdin: record (file of recorded/sitecustomize.py), model (directory of the fetched model), artifact
(of grpo), steps. The answer: for each version, the requests that say so, the largest difference of their
log-probabilities from those of that version's weights, and the mean one from those of the version before it;
and the difference of the last version from the trained weights.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import torch
from oracle import largest, logprobs, read_shards
from transformers import AutoModelForCausalLM


def read_requests(record):
    """Return the sampled requests by version: prompt, tokens and their log-probabilities."""
    requests = defaultdict(list)
    for line in map(json.loads, Path(record).read_text().splitlines()):
        if line["temperature"] > 0 and line["tokens"]:
            requests[line["version"]].append((line["prompt"], line["tokens"], torch.tensor(line["logprobs"])))
    return requests


@torch.no_grad()
def differences(model, requests):
    """Return the differences of the log-probabilities of all tokens."""
    return torch.cat([(logprobs(model, prompt, tokens) - given).abs() for prompt, tokens, given in requests])


def main(request):
    requests, sent = read_requests(request["record"]), {}
    for version in range(request["steps"] + 1):
        file = f"{request['record']}.{version}"
        weights = torch.load(file, weights_only=True)
        sent[version] = AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.float32).eval()
        sent[version].load_state_dict(weights)
    versions = []
    for version, given in sorted(requests.items()):
        row = {"version": version, "requests": len(given)}
        row["own"] = differences(sent[version], given).max().item()
        if version:
            row["before"] = differences(sent[version - 1], given).mean().item()
        versions.append(row)
    trained = read_shards(Path(request["artifact"]))
    return {"versions": versions, "trained": largest(trained, sent[request["steps"]].state_dict())}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(json.load(sys.stdin))))
