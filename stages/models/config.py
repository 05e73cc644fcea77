"""The model section: its fields, what follows from them and the family, and its rules."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from stages.base.errors import Problem
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


def shape_problems(model: ModelConfig) -> Iterator[Problem]:
    """Yield a problem if the frequencies of scaled rotary positions are in the wrong order."""
    scaling = model.rope_scaling
    if scaling is not None and scaling.high_freq_factor <= scaling.low_freq_factor:
        path, value = "model.rope_scaling.high_freq_factor", scaling.high_freq_factor
        rule, remedy = "must be above low_freq_factor", "Llama 3 has 4 and 1"
        yield Problem(path, value, rule, remedy, "transformers' modeling_rope_utils.py")


def id_problems(model: ModelConfig) -> Iterator[Problem]:
    """Yield problems of ids that the section names; those of files are checked by special_ids."""
    if model.eos_token_id == ():
        rule, source = "must name at least one id", "ours: nothing would end a completion"
        yield Problem("model.eos_token_id", [], rule, "set it to null", source)
    named = {"bos": model.bos_token_id, "eos": model.eos_token_id, "pad": model.pad_token_id}
    for name, ids in named.items():
        for index in ids if isinstance(ids, tuple) else () if ids is None else (ids,):
            if index >= model.vocab_size:
                rule, remedy = f"must be below vocab_size={model.vocab_size}", "give the tokenizer's own id"
                source = "ours: the embedding has no more rows"
                yield Problem(f"model.{name}_token_id", index, rule, remedy, source)
                break
