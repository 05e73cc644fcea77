"""Settings of engine=mindrlhf. Defaults: conf/engine/mindrlhf.yaml."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from stages.base.bounds import Positive
from stages.base.identity import CheckoutDirectory
from stages.engines.config import OutsideEngine, UpstreamKeys

Version = Literal["0cd087455", "e8a8fc1"]
VERSIONS: tuple[Version, ...] = ("e8a8fc1", "0cd087455")
"""Commits of mindspore-ai/mindrlhf whose contract is known, newest first; the first is assumed without a
checkout. They differ in

- main.py's arguments: contract.py _NAME_ARGUMENTS (by which a checkout is recognised), files.py arguments;
- keys and sections of grpo_config.yaml, and the tokenizer's path: Job.is_newer in files.py;
- what is refused and noted: Job.is_newer in rules.py.

Some families run at one of them only (Mindrlhf.contracts in stages/models/family.py).
"""


@dataclass(frozen=True)
class MindrlhfSettings(OutsideEngine):
    """Settings of mindrlhf's tutorial and of its one-stage script."""

    mindrlhf_home: Annotated[str | None, CheckoutDirectory()]
    """The checkout; null: plan and run --render assume the newest contract, run refuses."""
    mindformers_home: Annotated[str | None, CheckoutDirectory()]
    """Checkout of mindformers for PYTHONPATH; null: the interpreter's own mindformers."""
    contract: str
    """Version of arguments and behaviour, a Literal in each engine's own settings."""
    epochs: Positive
    """Passes over the prompts; mindrlhf knows no number of steps. grpo_one_stage.py makes one step per
    num_rollouts prompts: it mistakes the number of prompts for that of batches."""
    chunk_size: Positive
    """Prompts per generation replica and batch; prompts_per_step = num_rollouts x chunk_size x replicas."""
    batch_size: Positive
    """Rows per card and micro-batch of an update (mindrlhf's default 1)."""
    micro_batch_interleave_num: Positive
    """Parts of a micro-batch that are computed while others communicate, for model_parallel above 1; in a
    pipeline only (default 1; mindrlhf calls it micro_batch_interleaved)."""
    seq_length: Positive | None
    """Row length of training; null: the longest sample, rounded up to a multiple of 128. mindrlhf (not its
    one-stage script) needs pack_num samples of one more token each, and at least 2048, below which
    mindformers refuses packed rows."""
    block_size: Positive
    """Tokens per block of the generation's cache (mindrlhf's default 16, one-stage script 32)."""
    device_memory_gib: Positive
    """context.max_device_memory of a card (shipped YAML: 58, for cards of 64 GiB)."""


@dataclass(frozen=True)
class MindrlhfEngine(MindrlhfSettings):
    """mindrlhf's GRPO (examples/grpo/qwen_grpo_tutorial/main.py) under msrun."""

    name: Literal["mindrlhf"]
    """mindrlhf: the user's checkout of mindspore-ai/mindrlhf."""
    msadapter_home: Annotated[str | None, CheckoutDirectory()]
    """msadapter's library directory, which vllm-mindspore needs; null: not put on PYTHONPATH."""
    contract: Literal["auto", "0cd087455", "e8a8fc1"]
    """Version of arguments and YAML keys; auto: recognised from the checkout's files."""
    load_ckpt_format: Literal["hf_safetensors", "ms_safetensors", "ckpt"]
    """Form of the initial weights: a Hugging Face directory, a complete directory, or rank directories."""
    use_vllm: Annotated[int, Ge(0), Le(2)]
    """0: MindFormers generates, with one seed per replica, so that layout.generate.data_parallel must be at
    least 2; 1: vllm-mindspore; 2: vLLM's model, MindFormers' generation (debugging, 0cd087455 only)."""
    tokenizer: Literal["auto", "qwen", "file"]
    """Decoder of ids for rewards. qwen: mindrlhf's own class with Qwen2.5's ids; file: the model's
    tokenizer.json; auto: qwen for Qwen2.5's vocabulary, file for every other."""
    pack_num: Positive
    """Samples packed into one row of seq_length (mindrlhf's default 1)."""
    max_model_len: Positive | None
    """vLLM's longest sequence; null: seq_length."""
    ref_model_batch_size: Positive
    """Rows per reference replica and forward pass (mindrlhf's default 2)."""
    infer_model_batch_size: Positive
    """Prompts per generation batch without vLLM (mindrlhf's default 2)."""
    max_num_seqs: Positive | None
    """Sequences that vLLM decodes at once; null: 1024, or max_model_len where it is shorter."""
    gpu_memory_utilization: Annotated[float, Gt(0), Le(1)]
    """Share of the card that vLLM may take (shipped YAML: 0.5)."""
    full_monitor: bool
    """Log KL, ratio and clip share of each update. No known contract can: must be false."""
    reshard_mem_opt_level: Annotated[int, Ge(0), Le(1)]
    """1: weights leave the card while they are resharded; slower, less memory (default 0)."""
    enable_reshard_optimizer: bool
    """Number the generation's cards so that resharding needs fewer exchanges (mindrlhf's default false)."""
    upstream: UpstreamKeys
    """More keys of mindrlhf's files, merged last: grpo_config.SECTION.KEY; model.ROLE.model.model_config.KEY
    for train, reference or generate; in families with experts model.ROLE.moe_config.KEY, too."""


SETTINGS = MindrlhfEngine
