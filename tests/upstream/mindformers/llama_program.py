"""Logits of mindformers' LlamaForCausalLM on a CPU: llama_program.py CASE.json WEIGHTS LOGITS.npy.

CASE holds `model`, keys of LlamaConfig, and `ids`, rows of tokens; WEIGHTS one safetensors file. Needs the
rehearsal's directory on PYTHONPATH, which replaces what a CPU has no kernel of; imports nothing else of ours.
"""

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
from mindspore import nn


class Split(nn.Cell):
    """SplitWithSize, which a CPU lacks."""

    def construct(self, x, sizes, axis):
        first, parts = 0, ()
        for size in sizes:
            parts += (x[..., first : first + size],)
            first += size
        return parts


def main(case_file, weights, logits_file):
    ms.set_context(mode=ms.GRAPH_MODE)
    case = json.loads(Path(case_file).read_text())
    ids = np.array(case["ids"], np.int32)
    network = LlamaForCausalLM(LlamaConfig(**case["model"], batch_size=len(ids), seq_length=ids.shape[1]))
    for layer in network.model.layers if case["model"]["qkv_concat"] else ():
        layer.attention.split_qkv = layer.feed_forward.split = Split()
    (file,) = Path(weights).glob("*.safetensors")
    loaded = ms.load_checkpoint(str(file), format="safetensors")
    left, unused = ms.load_param_into_net(network, loaded, strict_load=True)
    tied = {"lm_head.weight"} if case["model"]["tie_word_embeddings"] else set()
    assert set(left) <= tied and not unused, (left, unused)
    network.set_train(False)
    logits, _, _ = network(ms.Tensor(ids))
    np.save(logits_file, logits.asnumpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
