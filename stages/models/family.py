"""Declaration of a model family: everything that differs between families.

Weight tools, plan, memory estimates and engines read it and contain no family's name. Imports no numpy,
because plans need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from stages.base.layout import RoleLayout
from stages.models.shape import ModelFields, Shape

Values = dict[str, Any]
HF_EMBEDDING, HF_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
"""Tensor names that every family's Hugging Face checkpoint has."""


class Cut(Enum):
    """Ways in which mindformers shards a parameter; stages/models/layouts.py turns them into axes."""

    EMBEDDING = auto()
    HEAD = auto()
    FINAL_NORM = auto()
    LAYER_NORM = auto()
    ROWS = auto()
    """Linear layer, or its bias, whose outputs are sharded over model_parallel."""
    COLUMNS = auto()
    """model_parallel cuts the inputs."""
    FUSED_ROWS = auto()
    """ROWS of the feed-forward network whose gate and up are one parameter."""
    FUSED_COLUMNS = auto()
    FULL = auto()
    """Linear layer that every card computes completely."""
    ROUTER = auto()
    """FULL, with the tokens divided among all cards."""
    EXPERTS = auto()
    """A layer's experts, stacked: expert_parallel divides them, and nothing divides one expert."""


@dataclass(frozen=True)
class Rows:
    """Rows of a parameter and where they come from."""

    part: int
    """Index of the Weight's part."""
    first: int
    """First row in the part."""
    rows: slice
    """Rows of the parameter; the step may be 2."""
    step: int = 1
    """Distance between rows in the part."""


@dataclass(frozen=True)
class Weight:
    """One parameter of mindformers' network."""

    name: str
    parts: tuple[str, ...]
    """The tensors at Hugging Face that it consists of; several where it is fused."""
    shape: tuple[int, ...]
    """[out, in] of linear layers."""
    cut: Cut
    layer: int | None = None
    """The decoder layer that it belongs to."""
    arrange: Callable[[], Iterable[Rows]] | None = field(default=None, compare=False)
    """Return the position of its parts' rows; None: it has one part, or each part is an expert."""

    @property
    def stacked(self) -> bool:
        """True if each part is one expert."""
        return self.cut is Cut.EXPERTS

    @property
    def rows(self) -> Iterable[Rows]:
        """All of its rows; an expert counts as one row."""
        if self.arrange is not None:
            return self.arrange()
        if self.stacked:
            return (Rows(i, 0, slice(i, i + 1)) for i in range(len(self.parts)))
        return (Rows(0, 0, slice(0, self.shape[0])),)


@dataclass(frozen=True)
class TokenIds:
    """Special token ids."""

    bos: int
    eos: tuple[int, ...]
    pad: int


@dataclass(frozen=True)
class NetworkInputs:
    """Values from which the keys of a network in mindformers' YAML follow, for one role."""

    model: ModelFields
    layout: RoleLayout
    seq_length: int
    ids: TokenIds

    @property
    def offset(self) -> list[int] | int:
        """Layers that pipeline stages have beyond equal shares."""
        return list(self.layout.offset) or 0


NetworkKeys = Callable[[NetworkInputs], Values]
"""Function that returns keys of mindformers' YAML in the order of its files."""


@dataclass(frozen=True)
class ExpertKeys:
    """Keys of moe_config, with which mindformers describes a layer's experts."""

    training: NetworkKeys
    predicting: NetworkKeys


@dataclass(frozen=True)
class Network:
    """A family's network in mindformers."""

    arch: Values
    config: tuple[str, str]
    """File in a checkout, and the class that takes model_config."""
    training: NetworkKeys
    """Keys of model_config of trained and reference roles."""
    predicting: NetworkKeys
    """Keys of model_config of generation, besides those of sampling."""
    num_blocks: int
    """Blocks of its cache of keys and values."""
    experts: ExpertKeys | None = None


@dataclass(frozen=True)
class Mindrlhf:
    """Support of mindspore-ai/mindrlhf for a family."""

    main: str
    """The tutorial's entry point in a checkout."""
    name: str
    """--model_name and tokenizer_type."""
    model_name: str
    """rl_config.model_name."""
    contracts: tuple[str, ...] = ()
    """Versions whose tutorial runs; empty: all known ones."""
    generates_apart: bool = False
    """True if generation's network has other parameters than training's: vLLM reads the Hugging Face
    directory, and training converted weights (load_ckpt_format=ms_safetensors)."""
    embedding: tuple[int, int] | None = None
    """Shape of the embedding that its transfer of weights assumes in a pipeline; None: any."""
    accuracy: str | None = None
    """Upstream's name of the reward `accuracy`; None if it has none."""
    masks_samples: bool = False
    """True if the network gets the ends of packed samples (use_eod_attn_mask_compression)."""
    constant_ids: bool = False
    """True if its tokenizer class has special ids as constants (stages/engines/mindrlhf/vocabulary.py)."""
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """unk, bos, eos and pad of a tokenizer.json, where the class has none."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of its run_grpo.sh beyond those of every family."""
    notes: tuple[str, ...] = ()
    """Notes for the plan."""


def grouped_heads(model: ModelFields) -> Heads:
    """Return the sizes of grouped-query attention."""
    keys = model.num_key_value_heads * model.head_size
    return Heads(2 * (model.num_attention_heads * model.head_size + keys), "2 queries + 2 keys", 2 * keys)


def tied_head(shape: Shape) -> Mapping[str, str]:
    """Return names of lm_head in exports of tied models that repeat the embedding."""
    return {HEAD: HF_EMBEDDING} if shape.tie_word_embeddings else {}


@dataclass(frozen=True)
class Converter:
    """Arguments of MindSpeed-LLM's converter for a family."""

    model_type: str
    """--model-type-hf."""
    options: tuple[str, ...]


@dataclass(frozen=True)
class Experts:
    """The experts of a layer."""

    count: int
    """Routed ones."""
    per_token: int
    """Routed experts that process a token."""
    width: int
    """Elements between gate, up and down of one expert."""
    shared: int = 0
    """Experts that process every token, as one network."""
    dense_layers: int = 0
    """Leading layers with one feed-forward network instead of experts."""

    @property
    def intermediate_size(self) -> int:
        """Width of all experts that process one token."""
        return (self.per_token + self.shared) * self.width


@dataclass(frozen=True)
class Heads:
    """Elements of a token in a layer's attention, all heads together."""

    computed: int
    """Queries, keys, values and attention outputs."""
    formula: str
    cached: int
    """Elements that generation caches."""
    cut: bool = True
    """True if the cache is sharded over model_parallel."""


ROPE: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""Kinds of rotary positions that networks compute -> their keys in config.json."""


@dataclass(frozen=True)
class Family:
    """One family. What is None is not supported for it: refused, or left out."""

    name: str
    """model.family."""
    title: str
    """Name for messages."""
    architecture: str
    """Entry of config.json's architectures."""
    model_type: str
    """Value of config.json's model_type."""
    ids: Mapping[str, TokenIds]
    """Special ids per model.variant, unless the model section says otherwise."""
    weights: Callable[[Shape, bool], Sequence[Weight]]
    """All parameters in the model's order; the second argument says whether qkv_concat fuses them."""
    section: Callable[[Mapping[str, Any]], Values | None] | None = None
    """Return the values of the family's part of the model section (of its name) from a config.json; None if
    the file has none of them."""
    custom_attention: bool = False
    """True if `section` defines head sizes and the stretching of positions."""
    experts: Callable[[Shape], Experts] | None = None
    """None: it has no experts."""
    heads: Callable[[ModelFields], Heads] = grouped_heads
    untrained: Callable[[Shape], tuple[str, str]] | None = None
    """Prefix of tensors that no engine trains, and their description: convert leaves them out,
    and export takes them from its reference."""
    repeated: Callable[[Shape], Mapping[str, str]] = tied_head
    """Tensors that checkpoints may repeat under another name -> those that they repeat."""
    key_value_heads: int | None = None
    """num_key_value_heads where config.json has no such key; None: num_attention_heads."""
    head_dim: int | None = None
    """Elements of an attention head where config.json does not say; None: hidden_size / heads."""
    hf_config: Callable[[ModelFields], Values] = lambda model: {}
    """Keys of its config.json beyond the usual ones."""
    keys: frozenset[str] = frozenset()
    """Further keys of a config.json that `section`, `window` or head_dim is read from."""
    harmless: Mapping[str, str] = field(default_factory=dict)
    """Further keys of a config.json without effect on results -> the reason."""
    fixed: Callable[[Mapping[str, Any]], Mapping[str, Sequence[Any]]] = lambda config: {}
    """Further keys of a config.json with the values that the networks implement, the usual one first."""
    rope: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: ROPE)
    """Kinds of rotary positions -> their keys in config.json."""
    window: Callable[[Mapping[str, Any]], Any] = lambda config: None
    """Tokens that a config.json lets some layer attend to; None: all earlier ones in every layer."""
    fuses: bool = True
    """True if mindformers stores it with qkv_concat."""
    small: Mapping[str, int] = field(default_factory=dict)
    """Keys of its part of the model section, as small as a rehearsal's model has them."""
    network: Network | None = None
    mindrlhf: Mindrlhf | None = None
    megatron: Callable[[ModelFields], Values] | None = None
    """The model's section in MindSpeed-RL's training YAML."""
    converter: Converter | None = None
    """Arguments of its converter."""
