"""verl 0.9.1 on a CPU: a platform, a training engine and a rollout, registered at verl's extension points.

Only verl's interpreter imports this package, which imports nothing of grpoflow. verl/__init__.py imports it
in each of verl's processes, under PYTHONPATH=<parent directory>, VERL_USE_EXTERNAL_MODULES=grpoflow_verl_cpu
and VERL_PLATFORM=grpoflow_cpu.

Code of verl that runs unmodified (paths in verl/):
    trainer/main_ppo.py                       entry point, configuration, Ray, TaskRunnerV1
    trainer/ppo/v1/trainer_{base,sync,separate_async}.py  steps, advantages, checkpoints, resumption, metrics
    trainer/ppo/v1/agent_loop_tq.py           agent loop workers and TransferQueue
    trainer/ppo/core_algos.py                 advantages and losses
    experimental/{agent_loop,reward_loop}     chat template, agent loops, reward functions
    workers/engine_workers.py                 ActorRolloutRefWorker
    workers/engine/fsdp/transformer_impl.py   FSDP2 engine: forward, backward, optimizer, LoRA
    workers/rollout/{llm_server,router}.py    requests and their distribution to servers
    utils/checkpoint, model_merger            checkpoints and their conversion

What this package replaces:
    platform.py      plugin/platform/platform_npu.py: device "cpu" and gloo instead of npu and HCCL
    engine.py        one decision in the FSDP engine's construction, which needs an accelerator
    rollout.py       workers/rollout/vllm_rollout: generation with transformers (sampling.py)
    agent_loops.py   experimental/agent_loop: the built-in loops, which also send the sample's identity
    weights.py       checkpoint_engine: transfer of weights to servers on cards of their own
    ordered.py       trainer/ppo/v1/replay_buffer.py: rows in a fixed order, and a shorter polling interval

Not exercised: HCCL, vllm-ascend and the transfer of weights to it, bfloat16, kernels and patches for NPUs,
offloading, Megatron/MindSpeed, memory of a card.
"""
# mypy: ignore-errors

import os

from grpoflow_verl_cpu import platform  # noqa: F401  registers the platform, which the next imports use

# isort: split
from verl.workers.rollout import base, replica


def _load_replica():
    from grpoflow_verl_cpu.rollout import Replica

    return Replica


replica.RolloutReplicaRegistry.register("hf", _load_replica)
base._ROLLOUT_REGISTRY["hf", "async"] = "grpoflow_verl_cpu.rollout.WeightSender"

if os.environ.get("WG_BACKEND") == "ray":  # set in training workers, the only users of the engine
    from grpoflow_verl_cpu import engine  # noqa: F401  registers the engine
