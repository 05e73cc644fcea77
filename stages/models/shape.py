"""Fields of the model section, with Hugging Face's key names; imports no family."""

import math
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le

from stages.base.bounds import NonNegative, Positive, PositiveFloat
from stages.base.identity import NotInIdentity

Dtype = Literal["float32", "bfloat16", "float16"]
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
if TYPE_CHECKING:
    FamilyName = str
else:
    FamilyName = Literal[
        tuple(module.name for module in pkgutil.iter_modules([str(Path(__file__).with_name("families"))]))
    ]


@dataclass(frozen=True)
class ModelRepositoryConfig:
    """A model's repositories on ModelScope, one per variant."""

    base: str
    """owner/name of the pretrained model."""
    instruct: str
    """owner/name of the instruction-tuned model."""
    id: str | None
    """Any other repository of the same shape, in place of the variant's."""
    revision: str
    """Commit, tag or branch."""


@dataclass(frozen=True)
class RopeScalingConfig:
    """Llama 3.1's stretched positions: rope_scaling of its config.json."""

    factor: Annotated[float, Ge(1)]
    """Factor by which low frequencies are reduced."""
    low_freq_factor: PositiveFloat
    """Frequencies with fewer turns than this within the original length are slow."""
    high_freq_factor: PositiveFloat
    """Frequencies with more turns stay; between the two limits the change is smooth."""
    original_max_position_embeddings: Positive
    """Positions before stretching."""

    def slowed(self, frequency: float) -> float:
        """Return an angular frequency after stretching. Source: see stages.grpo.attention.frequencies."""
        turns = self.original_max_position_embeddings * frequency / (2 * math.pi)
        span = self.high_freq_factor - self.low_freq_factor
        share = min(1.0, max(0.0, (turns - self.low_freq_factor) / span))
        return frequency * (share + (1 - share) / self.factor)


@dataclass(frozen=True)
class DeepseekV3Config:
    """Fields of DeepSeek-V3 in addition to Qwen2's shape."""

    q_lora_rank: Positive
    """Width of the compressed queries."""
    kv_lora_rank: Positive
    """Width of the compressed keys and values."""
    qk_nope_head_dim: Positive
    """Elements of a query or key head without position."""
    qk_rope_head_dim: Positive
    """Elements of a query or key head with position."""
    v_head_dim: Positive
    """Elements of a value head."""
    n_routed_experts: Annotated[Positive, Le(4096)]
    """Experts among which the router chooses."""
    n_shared_experts: Positive
    """Experts that process every token."""
    num_experts_per_tok: Positive
    """Routed experts that process a token."""
    moe_intermediate_size: Positive
    """Width of one expert."""
    first_k_dense_replace: NonNegative
    """Leading layers with one wide feed-forward network instead of experts."""
    n_group: Positive
    """Groups that the routed experts form."""
    topk_group: Positive
    """Groups among which a token's experts are chosen."""
    routed_scaling_factor: PositiveFloat
    """Factor of the routed experts' sum."""
    norm_topk_prob: bool
    """True if the chosen experts' weights are scaled to the sum 1."""
    rope_factor: PositiveFloat
    """Factor by which YaRN stretches positions; the next five are its other parameters in rope_scaling."""
    rope_original_length: Positive
    """Positions before stretching."""
    rope_beta_fast: PositiveFloat
    """Rotations within the original length above which a frequency is not stretched."""
    rope_beta_slow: PositiveFloat
    """Rotations within the original length below which a frequency is stretched fully."""
    rope_mscale: PositiveFloat
    """Factor in the scale of rotated queries and keys."""
    rope_mscale_all_dim: PositiveFloat
    """Factor in the scale of attention."""


@dataclass(frozen=True)
class Qwen3MoeConfig:
    """Fields of a Qwen3 with experts in addition to Qwen3's; intermediate_size is unused."""

    num_experts: Annotated[Positive, Le(4096)]
    """Number of experts per layer."""
    num_experts_per_tok: Positive
    """Experts that process a token."""
    moe_intermediate_size: Positive
    """Width of one expert."""
    norm_topk_prob: bool
    """True if the chosen experts' weights are scaled to the sum 1."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Fields that names and shapes of weights depend on; config.json's keys."""

    family: FamilyName
    """Model family, which decides tensors, ids and networks (a module in stages/models/families each)."""
    hidden_size: Positive
    """Elements of a token's state."""
    num_hidden_layers: Annotated[Positive, Le(1000)]
    """Decoder layers."""
    num_attention_heads: Positive
    """Heads of the queries."""
    num_key_value_heads: Positive
    """Heads of keys and values, each shared by as many of the queries."""
    intermediate_size: Positive
    """Elements between gate, up and down of a layer's feed-forward part."""
    vocab_size: Positive
    """Rows of the embedding; at least the tokenizer's size."""
    tie_word_embeddings: bool
    """The output head is the embedding."""
    head_dim: Positive | None = None
    """Elements of an attention head; null: hidden_size / num_attention_heads."""
    deepseek_v3: DeepseekV3Config | None = None
    """Additional fields of a DeepSeek-V3; null for every other family."""
    qwen3_moe: Qwen3MoeConfig | None = None
    """Additional fields of a Qwen3 with experts; null for every other family."""

    @property
    def head_size(self) -> int:
        """Elements per attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def extras(self) -> Any:
        """The part of this section that only its family has, which has the family's name."""
        return getattr(self, self.family, None)


@dataclass(frozen=True, kw_only=True)
class ModelFields(Shape):
    """Fields of one model. Shapes: config.json of the repositories that conf/model names."""

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
    """Repository on ModelScope."""
    tokenizer_path: Annotated[str | None, NotInIdentity()]
    """Directory with tokenizer.json, or vocab.json + merges.txt, to use instead of the model's own."""
    max_position_embeddings: Positive
    """Longest sequence in tokens that it was trained for."""
    rope_theta: PositiveFloat
    """Base of the rotary positions' frequencies."""
    rms_norm_eps: PositiveFloat
    """Added to the mean square under RMSNorm's root."""
    initializer_range: PositiveFloat
    """Standard deviation of builtin random weights."""
    bos_token_id: NonNegative | None
    """None: taken from the tokenizer (builtin models, whose vocabulary is trained on the spot)."""
    eos_token_id: tuple[NonNegative, ...] | None
    """Ids that end a completion; None: taken from the tokenizer."""
    pad_token_id: NonNegative | None
    """Id that fills rows; None: taken from the tokenizer."""
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
    rope_scaling: RopeScalingConfig | None = None
    """Stretching of positions (Llama 3.1 and later); null for none."""
    sliding_window: Annotated[Positive | None, NotInIdentity()] = None
    """Latest tokens that some layers attend to (config.json); null: all. No engine computes a window, so no
    sequence may be longer than it."""

    @property
    def hub_id(self) -> str:
        """owner/name on ModelScope; empty where there is none."""
        if self.hub is None:
            return ""
        return self.hub.id or (self.hub.base if self.variant == "base" else self.hub.instruct)
