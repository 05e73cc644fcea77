"""Strategy files of MindSpore's own front end for mindformers' network: front_end.py CASE.json DIRECTORY.

CASE holds `models`, keys of LlamaConfig by name, and `layout`, keys of stages.base.layout.RoleLayout. Of each
model and pipeline stage the first card is compiled for training, wrapped as mindformers' trainer does
(trainer/base_trainer.py: wrap_network_with_tool_cells), in a process of its own, into DIRECTORY/NAME.

The front end refuses the target CPU alone (step_parallel_utils.cc: GetCommInfo). So Ascend is made a known
target, and the number of cards is taken as it is said, as if hccl_test were there. Strategies are written
before a device would be asked for, where compiling ends with an error.

Imports nothing of this project, so that mindformers' environment will do.
"""

# ruff: noqa: E402 (variables and replacements come before what reads them)
import ctypes
import json
import os
import struct
import sys
from pathlib import Path

os.environ["RUN_MODE"] = "train"

import mindspore as ms
import numpy as np
from mindspore import communication
from mindspore._c_expression import ms_ctx_param
from mindspore.common.api import _cell_graph_executor
from mindspore.context import _context
from mindspore.nn import PipelineCell
from mindspore.nn.wrap.cell_wrapper import _VirtualDatasetCell
from mindspore.parallel._auto_parallel_context import auto_parallel_context
from mindspore.run_check import _check_version

for module in (communication, communication.management):  # which mindformers imports names from
    module.get_group_size = lambda group=None: ms.get_auto_parallel_context("device_num")
    module.get_rank = lambda group=None: ms.get_auto_parallel_context("global_rank")
    module.create_group = lambda *arguments: None

from mindformers.core.lr import ConstantWarmUpLR
from mindformers.core.optim import AdamW
from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
from mindformers.modules.transformer import TransformerOpParallelConfig
from mindformers.wrapper import MFPipelineWithLossScaleCell, MFTrainOneStepCell

TARGET = b"Ascend"
LENGTH = 64


def main(case_file, directory):
    case = json.loads(Path(case_file).read_text())
    layout = case["layout"]
    sizes = [layout[f"{name}_parallel"] for name in ("data", "model", "context")]
    stages, cards = layout["pipeline_stage"], int(np.prod(sizes))
    for name, model in case["models"].items():
        (Path(directory) / name).mkdir(parents=True)
        for stage in range(stages):
            file = Path(directory) / name / f"ckpt_strategy_rank_{stage * cards}.ckpt"
            if not (child := os.fork()):
                set_layout(layout, stages * cards, stage * cards, file)
                compile_step(model, layout)
            os.waitpid(child, 0)
            assert file.exists(), f"{name}: no strategy of stage {stage}"


def set_layout(layout, cards, rank, file):
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=cards,
        global_rank=rank,
        pipeline_stages=layout["pipeline_stage"],
        full_batch=True,
        enable_parallel_optimizer=layout["enable_parallel_optimizer"],
        parallel_optimizer_config={
            "parallel_optimizer_threshold": layout["parallel_optimizer_threshold_kb"],
            "optimizer_weight_shard_size": layout["optimizer_weight_shard_size"],
        },
        strategy_ckpt_config={"save_file": str(file), "only_trainable_params": False},
    )
    auto_parallel_context()._context_handle.set_hccl_test_avaible(True)


def compile_step(model, layout):
    stages, replicas = layout["pipeline_stage"], layout["data_parallel"]
    degrees = ("data_parallel", "model_parallel", "context_parallel", "use_seq_parallel", "vocab_emb_dp")
    config = LlamaConfig(
        **model,
        batch_size=replicas,
        seq_length=LENGTH,
        offset=layout["offset"] or 0,
        use_flash_attention=True,
        parallel_config=TransformerOpParallelConfig(
            **{name: layout[name] for name in degrees}, pipeline_stage=stages, micro_batch_num=stages
        ),
    )
    network = LlamaForCausalLM(config)
    optimizer = AdamW(network.trainable_params(), ConstantWarmUpLR(1e-3, warmup_steps=0, total_steps=1))
    if stages > 1:
        network = _VirtualDatasetCell(PipelineCell(network, stages))
        step = MFPipelineWithLossScaleCell(network, optimizer, micro_batch_num=stages)
    else:
        step = MFTrainOneStepCell(_VirtualDatasetCell(network), optimizer)
    step.set_train()
    ids = ms.Tensor(np.zeros((replicas * stages, LENGTH + 1), np.int32))
    compile_for_ascend()
    _cell_graph_executor.compile(step, ids, phase="train")


def compile_for_ascend():
    """Make Ascend a known target: any library's function stands for its plugin's start."""
    for name in ("check_env", "set_env", "check_version"):
        setattr(_check_version.AscendEnvChecker, name, lambda self: None)
    core = ctypes.CDLL(str(Path(ms.__file__).parent / "lib" / "libmindspore_core.so"))
    # an old std::string is a pointer behind length, capacity and references (-1: it is copied)
    text = ctypes.create_string_buffer(struct.pack("QQq", len(TARGET), len(TARGET), -1) + TARGET)
    string = ctypes.c_void_p(ctypes.addressof(text) + struct.calcsize("QQq"))
    start = ctypes.cast(core.getpid, ctypes.c_void_p)
    core._ZN9mindspore9MsContext16RegisterInitFuncERKSsPFvPS0_E(ctypes.byref(string), start)
    _context().set_param(ms_ctx_param.device_target, TARGET.decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
