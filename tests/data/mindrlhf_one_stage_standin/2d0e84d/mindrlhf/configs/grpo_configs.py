"""The hyper-parameters that a run reads; see ../../../README.md."""

from dataclasses import dataclass


@dataclass
class GRPOConfig:
    optimizer: str = "adamw"
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-08
    micro_batch_interleaved: int = 1
    end_lr: float = 1e-10
    decay_steps: int = 200000
    opt_offload: bool = False
    sync_ref_model: bool = True
    beta: float = 0.01
    num_generations: int = 8
    epochs: int = 10
    batch_size: int = 1
    num_rollouts: int = 4
    chunk_size: int = 2
    sink_size: int = 2
    start_lr: float = 5e-07
    warmup_step: int = 10
    ref_model_sync_steps: int = 50
