"""Rule rewards and prompt templates of MindSpeed-RL, and warnings about rewards that teach nothing.

A model seldom answers in a form that the prompt does not request; then all completions of a group get the
same reward, and nothing is learnt.
Source: Ascend/MindSpeed-RL at 667a547, models/rule_verifier.py and configs/model/templates.json.
"""

import json
from collections.abc import Iterator, Mapping

from stages.base.errors import Problem
from stages.engines.mindspeed_rl import contract
from stages.engines.mindspeed_rl.config import MindspeedRlEngine

_BOX, _TAGS = ("\\boxed",), ("<think>", "<answer>")
NEEDS: Mapping[str, tuple[str, ...]] = {
    "acc": _BOX,  # -1 without "boxed", -0.5 where it is wrong
    "format": _TAGS,
    "step": (),  # "Step 1:", numbered lists, First, Next: common without a request
    "strict_format": (*_BOX, *_TAGS),
    "base_acc": (*_BOX, *_TAGS),
}
"""Verifier -> what a completion must contain to earn it."""
_FORM_ONLY = ("format", "strict_format", "step")
"""Verifiers that ignore the ground truth."""
_REQUESTS = {
    "qwen_r1": " ".join((*_BOX, *_TAGS)),
    "qwen_math_r1": " ".join(_BOX),
    "qwen": "",
    "default": "",
    "empty": "",
}
"""Shipped prompt template -> the form that it requests."""


def has_verifier(engine: MindspeedRlEngine, name: str) -> bool:
    """Return True if a verifier is upstream's, or in the user's checkout, which may add some."""
    home = engine.mindspeed_rl_home
    return name in NEEDS or (home is not None and f'"{name}":' in contract.read(home, contract.VERIFIERS))


def prompt_types(home: str | None) -> list[str]:
    """Return the names of the checkout's prompt templates, sorted."""
    return sorted(_REQUESTS if home is None else contract.templates(home))


def prompt_words(engine: MindspeedRlEngine) -> str:
    """Return the text of the prompt template; without a checkout what the shipped one requests."""
    if engine.mindspeed_rl_home is None:
        return _REQUESTS[engine.prompt_type]
    template = contract.templates(engine.mindspeed_rl_home)[engine.prompt_type]
    parts = [template.get("default_system"), template.get("format_user")]
    return json.dumps(parts, ensure_ascii=False).replace("\\\\", "\\")


def warnings(engine: MindspeedRlEngine) -> Iterator[Problem]:
    """Yield problems of verifiers whose form the prompt does not request, and of constant rewards."""
    weights = dict(zip(engine.verifier_function, engine.verifier_weight, strict=True))
    names = [name for name, weight in weights.items() if weight > 0 and name in NEEDS]
    prompt = prompt_words(engine)
    for name in names:
        if missing := [words for words in NEEDS[name] if words not in prompt]:
            rule = (
                f"can't be earned: it reads {', '.join(missing)} (rule_verifier.py), which "
                f"engine.prompt_type={engine.prompt_type} does not request ({contract.TEMPLATES})"
            )
            remedy = "use acc with engine.prompt_type=qwen_r1 or qwen_math_r1"
            yield Problem("engine.verifier_function", name, rule, remedy)
    if names and all(name in _FORM_ONLY for name in names):
        rule = "gives wrong and right answers the same reward: it reads only the form (rule_verifier.py)"
        yield Problem("engine.verifier_function", ", ".join(names), rule, "add acc or base_acc")
