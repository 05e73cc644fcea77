"""The shape of a model and where it comes from, with Hugging Face's key names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from stages.errors import Problem
from stages.fetch.sources import ModelRepositoryConfig
from stages.identity import AbsentWhen, NotInIdentity

Positive = Annotated[int, Ge(1)]
Dtype = Literal["float32", "bfloat16", "float16"]
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class DeepseekV3Config:
    """What a DeepSeek-V3 has besides a Qwen2's shape: latent attention, experts, YaRN (its config.json).

    Only engine=mindrlhf's files are rendered from it; the weight tools and engine=local know Qwen2 alone.
    """

    q_lora_rank: Positive
    """Width of the compressed queries."""
    kv_lora_rank: Positive
    """Width of the compressed keys and values."""
    qk_nope_head_dim: Positive
    """Elements of a query or key head without position."""
    qk_rope_head_dim: Positive
    """Elements of it with one."""
    v_head_dim: Positive
    """Elements of a value head."""
    n_routed_experts: Positive
    n_shared_experts: Positive
    num_experts_per_tok: Positive
    """Routed experts that see a token."""
    moe_intermediate_size: Positive
    """Width of one expert."""
    first_k_dense_replace: Annotated[int, Ge(0)]
    """Leading layers with one wide feed-forward network instead of experts."""
    n_group: Positive
    """Groups that the routed experts form."""
    topk_group: Positive
    """Groups among which a token's experts are chosen."""
    routed_scaling_factor: Annotated[float, Gt(0)]
    """Factor of the routed experts' sum."""
    norm_topk_prob: bool
    """Whether the chosen experts' weights are scaled to the sum 1."""
    rope_factor: Annotated[float, Gt(0)]
    """rope_scaling (YaRN), this and the next five: how far positions are stretched."""
    rope_original_length: Positive
    """Positions before that."""
    rope_beta_fast: Annotated[float, Gt(0)]
    rope_beta_slow: Annotated[float, Gt(0)]
    rope_mscale: Annotated[float, Gt(0)]
    rope_mscale_all_dim: Annotated[float, Gt(0)]


@dataclass(frozen=True)
class ModelConfig:
    """One model. Shapes: config.json of the Qwen/Qwen2.5-* repositories."""

    name: str
    """Short name, for reports and directories: tiny, qwen2_5_7b, ..."""
    variant: Literal["base", "instruct"]
    """Selects hub id, eos ids and whether the chat template applies."""
    source: Literal["builtin", "local", "modelscope"]
    """builtin: random weights from the seed; local: a Hugging Face directory at `path`; modelscope: `hub`.
    null in a YAML file: local when there is a path, else modelscope."""
    path: Annotated[str | None, NotInIdentity()]
    """The user's Hugging Face directory (source=local)."""
    hub: ModelRepositoryConfig | None
    """Where it is on ModelScope."""
    tokenizer_path: Annotated[str | None, NotInIdentity()]
    """Directory with tokenizer.json, or vocab.json + merges.txt, to use instead of the model's own."""
    hidden_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    num_key_value_heads: Positive
    intermediate_size: Positive
    vocab_size: Positive
    """Rows of the embedding; at least the tokenizer's size."""
    max_position_embeddings: Positive
    rope_theta: Annotated[float, Gt(0)]
    rms_norm_eps: Annotated[float, Gt(0)]
    initializer_range: Annotated[float, Gt(0)]
    """Standard deviation of builtin random weights."""
    tie_word_embeddings: bool
    bos_token_id: Annotated[int, Ge(0)] | None
    """None: taken from the tokenizer (builtin models, whose vocabulary is trained on the spot)."""
    eos_token_id: tuple[int, ...] | None
    """Ids that end a completion; None: taken from the tokenizer."""
    pad_token_id: Annotated[int, Ge(0)] | None
    torch_dtype: Dtype
    """Storage dtype of the Hugging Face weights: those fetched, and those exported unless export.dtype says
    otherwise."""
    param_init_type: Dtype
    """Dtype that MindSpore initialises parameters in: decides parameter-optimizer thresholds and bytes. With
    engine=local the dtype of trained weights between stages (the rank directories that sft and grpo write);
    in memory and in checkpoints they are float32 whatever it says, and so is every computation, for
    MindSpore 2.7.0 has no bfloat16 kernels of MatMul, Gather, Softmax or Mul for CPUs (seen: Cast, Add and
    Concat alone)."""
    qkv_concat: bool
    """Fuse q/k/v and gate/up as mindformers' qkv_concat does."""
    deepseek_v3: Annotated[DeepseekV3Config | None, AbsentWhen(None)]
    """What makes it a DeepSeek-V3; null: a Qwen2."""

    @property
    def hub_id(self) -> str:
        """owner/name on ModelScope; empty where there is none."""
        if self.hub is None:
            return ""
        return self.hub.id or (self.hub.base if self.variant == "base" else self.hub.instruct)

    @property
    def head_dim(self) -> int:
        """Elements per attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_parameters(self) -> int:
        """Elements of all weights; tied embeddings count once."""
        embeddings = (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size
        if self.deepseek_v3 is not None:
            return self._deepseek_layers(self.deepseek_v3) + embeddings + self.hidden_size
        kv = self.num_key_value_heads * self.head_dim
        attention = 2 * self.hidden_size**2 + 2 * self.hidden_size * kv + self.hidden_size + 2 * kv
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        return self.num_hidden_layers * layer + embeddings + self.hidden_size

    def _deepseek_layers(self, shape: DeepseekV3Config) -> int:
        """Elements of all decoder layers; the layer that predicts a second token ahead is not trained."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        queries = shape.q_lora_rank * (hidden + 1 + heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim))
        values = shape.kv_lora_rank * (hidden + 1 + heads * (shape.qk_nope_head_dim + shape.v_head_dim))
        attention = queries + values + hidden * (shape.qk_rope_head_dim + heads * shape.v_head_dim)
        experts = shape.n_routed_experts + shape.n_shared_experts
        sparse = 3 * hidden * shape.moe_intermediate_size * experts + (hidden + 1) * shape.n_routed_experts
        dense = min(shape.first_k_dense_replace, self.num_hidden_layers)
        feed_forward = dense * 3 * hidden * self.intermediate_size + (self.num_hidden_layers - dense) * sparse
        return self.num_hidden_layers * (attention + 2 * hidden) + feed_forward

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights at their storage dtype."""
        return self.num_parameters * ITEM_BYTES[self.torch_dtype]

    @property
    def trained_bytes(self) -> int:
        """Bytes of all weights between stages."""
        return self.num_parameters * ITEM_BYTES[self.param_init_type]


def check_ids(config: ModelConfig, path: str = "model") -> Iterator[Problem]:
    """Ids that `config` names must be rows of the embedding; those of files are checked by special_ids."""
    if config.eos_token_id == ():
        rule = "must name at least one id: nothing would end a completion"
        yield Problem(f"{path}.eos_token_id", [], rule, "set it to null, or name one")
    for name in ("bos", "eos", "pad"):
        ids = getattr(config, f"{name}_token_id")
        for one in ids if isinstance(ids, tuple) else () if ids is None else (ids,):
            if not 0 <= one < config.vocab_size:
                rule = f"must be from 0 and below vocab_size={config.vocab_size} (ours: no more rows)"
                yield Problem(f"{path}.{name}_token_id", one, rule, "give the tokenizer's own id")
