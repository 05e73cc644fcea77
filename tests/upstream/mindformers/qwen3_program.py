"""Logits of mindformers' InferenceQwen3ForCausalLM on a CPU: qwen3_program.py CASE.json WEIGHTS LOGITS.npy.

CASE holds `model`, keys of Qwen3Config, and `ids`, one row of tokens. The directory WEIGHTS is read by the
network's own load_weights. Norm, rotation, attention and splitting, which are kernels of the card, are plain
operations here; that the network answers for a prompt's last token alone is left out; nothing is compiled.

Imports nothing of this project, so that mindformers' environment will do.
"""

# ruff: noqa: E402 (variables and replacements come before what reads them)
import json
import os
import sys
from pathlib import Path

os.environ["RUN_MODE"] = "predict"

import mindspore as ms
import numpy as np
from mindspore import communication, mint, ops

for module in (communication, communication.management):  # which mindformers imports names from
    module.get_group_size = lambda group=None: 1
    module.get_rank = lambda group=None: 0

from mindformers.models.qwen3.configuration_qwen3 import Qwen3Config
from mindformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM
from mindformers.parallel_core.inference.base_models.common.embeddings.rotary_pos_embedding import (
    RotaryEmbedding,
)
from mindformers.parallel_core.inference.base_models.gpt.gpt_model import GPTModel
from mindformers.parallel_core.inference.transformer.flash_attention import FlashAttention
from mindformers.parallel_core.inference.transformer.norm import RMSNorm


def norm(self, x):
    return x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + self.eps) * self.weight


def rotate(self, query, key, cos, sin, lengths):
    def turn(x):
        heads = x.reshape(len(x), -1, self.dim)
        halves = ops.cat((-heads[..., self.dim // 2 :], heads[..., : self.dim // 2]), -1)
        at = slice(len(x))
        return (heads * cos[at].expand_dims(1) + halves * sin[at].expand_dims(1)).reshape(x.shape)

    return turn(query), turn(key)


def attend(self, query, key, value, **ignored):
    size, length = self.hidden_size_per_attention_head, len(query)
    query, key, value = (x.reshape(length, -1, size).swapaxes(0, 1) for x in (query, key, value))
    key, value = (ops.repeat_interleave(x, self.head_num // self.kv_head_num, 0) for x in (key, value))
    scores = ops.bmm(query, key.swapaxes(1, 2)) / size**0.5
    hidden = ms.Tensor(np.triu(np.ones((length, length), bool), 1))
    shares = ops.softmax(scores.masked_fill(hidden, -1e9), -1)
    return ops.bmm(shares, value).swapaxes(0, 1).reshape(length, -1)


def split(x, sizes, axis):
    ends = np.cumsum(sizes).tolist()
    return [x[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]


mint.split = split
RMSNorm.construct, RotaryEmbedding.construct, FlashAttention.construct = norm, rotate, attend
GPTModel.pre_gather_func = lambda self, output, *lengths: output


def main(case_file, weights, logits_file):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    case = json.loads(Path(case_file).read_text())
    network = Qwen3ForCausalLM(Qwen3Config(**case["model"]))
    network.load_weights(weights)
    logits = network.model(ms.Tensor(np.array(case["ids"], np.int32)))
    np.save(logits_file, logits.asnumpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
