"""Llama 3.1, 3.2 and 3.3: no biases, and rotary frequencies stretched beyond the original length.

mindformers' network of Llama is Qwen2's; mindrlhf has no tutorial for it, and MindSpeed-RL no model file.

Source: transformers 4.57, models/llama/modeling_llama.py; mindformers 1.6.0, models/llama/convert_weight.py;
tokenizer_config.json and generation_config.json of the meta-llama repositories.
"""

import functools

from stages.models.decoder import LLAMA, weights
from stages.models.family import Family, TokenIds

BEGIN_OF_TEXT, END_OF_TEXT, FINETUNE_RIGHT_PAD = 128000, 128001, 128004
END_OF_MESSAGE, END_OF_TURN = 128008, 128009

FAMILY = Family(
    name="llama3",
    title="Llama 3",
    architecture="LlamaForCausalLM",
    model_type="llama",
    ids={
        "base": TokenIds(BEGIN_OF_TEXT, (END_OF_TEXT,), FINETUNE_RIGHT_PAD),
        "instruct": TokenIds(BEGIN_OF_TEXT, (END_OF_TURN, END_OF_TEXT, END_OF_MESSAGE), FINETUNE_RIGHT_PAD),
    },
    weights=functools.partial(weights, names=LLAMA),
    keys=frozenset({"head_dim"}),
    harmless={"pretraining_tp": "splits matrix products without changing their results"},
    fixed=lambda config: {"attention_bias": (False,), "mlp_bias": (False,), "sliding_window": (None,)},
    hf_config=lambda model: {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1},
)
