"""Memory of a card that FSDP2 shards a model over, as verl and AReaL use it.

Each card stores its share of float32 weights, gradients and moments of AdamW. To compute, a layer is put
together from all shares, in another dtype, and divided again afterwards.
"""

from stages.models import memory
from stages.models.config import ModelConfig
from stages.models.layouts import kinds_of_layers
from stages.models.memory import Term


def share(elements: int, cards: int) -> int:
    """Return the elements that a card stores."""
    return -(-elements // cards)


def updated(trained: int) -> tuple[Term, Term]:
    """Return gradients and optimizer state of the elements that a card trains."""
    moments = memory.exact("optimizer", 8 * trained, f"2 moments x {trained:,} elements x 4 (float32)")
    return memory.sized("gradients", trained, "float32"), moments


def gathered(model: ModelConfig, item: int) -> Term:
    """Return the memory of the layers that are put together: one, and one that is prefetched.

    `item`: bytes of an element in the dtype that layers are computed in.
    """
    embedding = model.vocab_size * model.hidden_size
    layer = (model.num_parameters - embedding) // model.num_hidden_layers
    formula = f"one to two layers of {layer:,} elements, or the embedding, x {item}; estimate"
    return Term("gathered weights", item * layer, item * max(2 * layer, embedding), formula)


def adapter_elements(model: ModelConfig, rank: int) -> int:
    """Return the elements of LoRA adapters of all linear layers except for experts and the head.

    An adapter of a layer with `in` inputs and `out` outputs has rank x (in + out) elements; layers that
    mindformers fuses have one for each of their parts.
    """
    kinds = kinds_of_layers(model)
    of_kind = []
    for weights in kinds.weights:
        linear = [weight for weight in weights if len(weight.shape) == 2 and not weight.stacked]
        sides = sum(weight.shape[0] + len(weight.parts) * weight.shape[1] for weight in linear)
        of_kind.append(rank * sides)
    return sum(of_kind[kind] for kind in kinds.of_layer)
