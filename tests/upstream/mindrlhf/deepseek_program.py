"""mindrlhf hands DeepSeek-V3's weights to generation, on one CPU worker: deepseek_program.py CASE.json.

CASE holds `model` and `moe`, keys of the network that trains, and the directories `converted` (its weights),
`huggingface` and `work`. The result, work/result.json, names parameters of generation that did not arrive
and those that differ from the weights at Hugging Face. Needs the rehearsal's directory on PYTHONPATH.
"""

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.communication import init


class Holder(nn.Cell):
    """A network under a name, as mindrlhf's cells hold it."""

    def __init__(self, network, name):
        super().__init__()
        setattr(self, name, network)


def save_strategy(network, directory):
    """Write a network's strategy, unsharded, and merge it; return the merged file."""
    from mindformers.parallel_core.inference.utils import generate_state_dict
    from mindrlhf.utils.strategy_utils import save_strategy_file

    directory.mkdir()
    save_strategy_file(generate_state_dict(network), None, str(directory / "strategy_0.ckpt"))
    merged = directory.with_suffix(".ckpt")
    ms.merge_pipeline_strategys(str(directory), str(merged))
    return str(merged)


def main(case_file):
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    init()
    from grpoflow_cpu.vllm import open_model, read
    from mindrlhf.utils import TransformParametersD2DForDSv3
    from mindrlhf.worker.transform_worker import match_func_dkv3_vllm
    from research.deepseek3.deepseek3_config import DeepseekV3Config
    from research.deepseek3.deepseek3_model_train import TrainingDeepseekV3ForCausalLM

    case = json.loads(Path(case_file).read_text())
    work, source = Path(case["work"]), Path(case["huggingface"])
    config = DeepseekV3Config(**case["model"], moe_config=case["moe"])
    policy = Holder(Holder(TrainingDeepseekV3ForCausalLM(config), "model"), "policy_model")
    train = Holder(policy, "grpo_model_train")
    (file,) = Path(case["converted"]).glob("*.safetensors")
    loaded = ms.load_checkpoint(str(file), format="safetensors")
    prefix = "grpo_model_train.policy_model.model."
    _, unused = ms.load_param_into_net(train, {prefix + name: value for name, value in loaded.items()})
    assert not unused, unused
    generation = open_model(source, config.seq_length)
    for parameter in generation.network.get_parameters():
        parameter.set_data(ms.Tensor(np.zeros(parameter.shape, np.float32)))
    infer = Holder(Holder(generation.network, "policy_model"), "grpo_model")
    sizes = {  # as in transform_worker.py:186
        "n_head": config.num_heads, "qk_nope_head_dim": config.qk_nope_head_dim,
        "qk_rope_head_dim": config.qk_rope_head_dim, "tok_embedding_shape": (129280, 7168),
    }  # fmt: skip
    files = (save_strategy(train, work / "train"), save_strategy(infer, work / "infer"))
    transfer = TransformParametersD2DForDSv3(train, infer, sizes, *files, match_func_dkv3_vllm, 0)
    transfer.transform((True, True))
    arrived = generation.network.values()
    expected = generation.fused({name: value.asnumpy() for name, value in read(source)})
    assert arrived.keys() == expected.keys()
    result = {
        "missing": [name for name, value in arrived.items() if not value.any()],
        "different": [name for name, value in arrived.items() if not np.array_equal(value, expected[name])],
    }
    (work / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
