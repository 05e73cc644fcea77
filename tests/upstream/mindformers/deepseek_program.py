"""Logits of mindformers' network that trains DeepSeek-V3: deepseek_program.py CASE.json WEIGHTS LOGITS.npy.

CASE holds `model`, keys of DeepseekV3Config, `moe`, those of moe_config, and `ids`, rows of tokens; WEIGHTS
one safetensors file. Needs the rehearsal's directory on PYTHONPATH, which replaces what a CPU has no kernel
of; imports nothing else of ours.
"""

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from research.deepseek3.deepseek3_config import DeepseekV3Config
from research.deepseek3.deepseek3_model_train import TrainingDeepseekV3ForCausalLM


class Logits(nn.Cell):
    """Logits as mindrlhf computes them (models/grpo_models.py, deepseek_training)."""

    def __init__(self, network):
        super().__init__()
        self.backbone, self.head = network.model, network.lm_head

    def construct(self, tokens):
        states, _ = self.backbone(tokens, extra_loss=0.0)
        return self.head(states)


def main(case_file, weights, logits_file):
    ms.set_context(mode=ms.GRAPH_MODE)
    case = json.loads(Path(case_file).read_text())
    network = TrainingDeepseekV3ForCausalLM(DeepseekV3Config(**case["model"], moe_config=case["moe"]))
    (file,) = Path(weights).glob("*.safetensors")
    loaded = ms.load_checkpoint(str(file), format="safetensors")
    left, unused = ms.load_param_into_net(network, loaded, strict_load=True)
    assert all(name.endswith(".expert_load") for name in left) and not unused, (left, unused)
    network.set_train(False)
    np.save(logits_file, Logits(network)(ms.Tensor(np.array(case["ids"], np.int32))).asnumpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
