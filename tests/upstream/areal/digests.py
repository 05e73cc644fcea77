"""Digests of models; runs in AReaL's interpreter.

Arguments: Hugging Face directories with tied embeddings. The answer: for each the digest that grpoflow's
server for CPUs logs of the weights that it loaded.
"""

import hashlib
import json
import sys
from pathlib import Path

from safetensors.torch import load_file


def digest_of(tensors):
    """Return the digest of tensors by name."""
    total = hashlib.sha256()
    for name in sorted(tensors.keys() - {"lm_head.weight"}):
        total.update(name.encode())
        total.update(tensors[name].float().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def digest(directory):
    tensors = {}
    for file in directory.glob("*.safetensors"):
        tensors |= load_file(file)
    return digest_of(tensors)


if __name__ == "__main__":
    print(json.dumps([digest(Path(argument)) for argument in sys.argv[1:]]))
