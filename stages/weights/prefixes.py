"""Parameter names as engines save them, and optimizer states."""

from stages.weights.strategy.files import Strategy

_MINDRLHF_PREFIXES = ("grpo_model_train.policy_model.model.", "grpo_model.policy_model.model.")
_CLONES = ("adam_m.", "adam_v.", "accu_grads.")


def plain_name(name: str) -> str:
    """Return a parameter's name without the prefix of mindrlhf's trainer or generator.

    Source: mindrlhf e8a8fc1, see the strategy and checkpoint names in its trainers.
    """
    clone = next((prefix for prefix in _CLONES if name.startswith(prefix)), "")
    remaining = name[len(clone) :]
    for prefix in _MINDRLHF_PREFIXES:
        if remaining.startswith(prefix):
            return clone + remaining[len(prefix) :]
    if remaining.startswith(("model.model.", "model.lm_head.")):  # the reference model's
        return clone + remaining[len("model.") :]
    return name


def is_clone(name: str) -> bool:
    """Return True if the name is an optimizer's state of a parameter."""
    return name.startswith(_CLONES)


def plain_strategy(strategy: Strategy) -> Strategy:
    """Return the same layouts under unprefixed names."""
    tensors = {plain_name(name): layout for name, layout in strategy.tensors.items()}
    return Strategy(tensors, strategy.stages, strategy.cards_per_stage)
