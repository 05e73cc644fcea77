"""The model section: its fields, what follows from them and the family, and its rules."""

import functools
import math
from dataclasses import dataclass

from stages.base.rules import Broken, Rules, hold
from stages.models.families import family_of, weights_of
from stages.models.family import TokenIds
from stages.models.shape import ITEM_BYTES, Dtype, ModelFields, Shape

__all__ = ["ITEM_BYTES", "Dtype", "ModelConfig", "Shape"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelFields):
    """One model."""

    @property
    def num_parameters(self) -> int:
        """Elements of all weights; tied embeddings count once."""
        return _num_parameters(self)[0]

    @property
    def active_parameters(self) -> int:
        """Number of parameters that a token passes: all but the experts that do not process it."""
        return _num_parameters(self)[1]

    @property
    def token_ids(self) -> TokenIds:
        """The family's special ids, unless this section says otherwise."""
        usual = family_of(self).ids[self.variant]
        return TokenIds(
            bos=usual.bos if self.bos_token_id is None else self.bos_token_id,
            eos=self.eos_token_id or usual.eos,
            pad=usual.pad if self.pad_token_id is None else self.pad_token_id,
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights at their storage dtype."""
        return self.num_parameters * ITEM_BYTES[self.torch_dtype]

    @property
    def trained_bytes(self) -> int:
        """Bytes of all weights between stages."""
        return self.num_parameters * ITEM_BYTES[self.param_init_type]


@functools.lru_cache(maxsize=64)
def _num_parameters(model: ModelConfig) -> tuple[int, int]:
    total = idle = 0
    experts = family_of(model).experts
    for weight in weights_of(model):
        size = math.prod(weight.shape)
        total += size
        if weight.stacked and experts is not None:
            idle += size - size * experts(model).per_token // experts(model).count
    return total, total - idle


SHAPE = Rules[ModelConfig]("shape")
SHAPE.must(
    "model.rope_scaling.high_freq_factor",
    hold(
        lambda config: (
            config.rope_scaling is None
            or config.rope_scaling.high_freq_factor > config.rope_scaling.low_freq_factor
        ),
        "must be above low_freq_factor",
        "Llama 3 has 4 and 1",
    ),
    "transformers' modeling_rope_utils.py",
)

IDS = Rules[ModelConfig]("ids", "ours: the embedding has no more rows")
"""Rules of ids that the section names; those of files are checked by special_ids."""


IDS.must(
    "model.eos_token_id",
    hold(lambda config: config.eos_token_id != (), "must name at least one id", "set it to null"),
    "ours: nothing would end a completion",
)


@IDS.row("model.{}_token_id", each=("bos", "eos", "pad"))
def _token_id(config: ModelConfig, name: str) -> Broken:
    """Require token ids below model.vocab_size."""
    ids = getattr(config, f"{name}_token_id")
    for index in ids if isinstance(ids, tuple) else () if ids is None else (ids,):
        if index >= config.vocab_size:
            rule = f"must be below vocab_size={config.vocab_size}"
            return rule, "give the tokenizer's own id", index
    return None
