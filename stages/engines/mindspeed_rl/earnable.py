"""Can MindSpeed-RL's rule rewards be earned with the prompts that it makes? Told without running any.

What each verifier looks for in a completion, and what each prompt template asks for, were read in
Ascend/MindSpeed-RL at 05a90d7 and 667a547: models/rule_verifier.py, models/math_dapo.py,
configs/model/templates.json. A model that is asked for no form seldom keeps one, so that a verifier whose
form is not asked for gives all completions of a group the same: nothing is learnt.
"""

from collections.abc import Mapping
from typing import Any

from stages.base.errors import Problem
from stages.engines.mindspeed_rl import contract
from stages.engines.mindspeed_rl.config import MindspeedRlEngine

BOXED, TAGS, LABEL = "\\boxed{}", "<think> and <answer>", "Answer:"
NEEDS: Mapping[str, frozenset[str]] = {
    "acc": frozenset((BOXED,)),  # -1 without "boxed", -0.5 where it is wrong
    "acc_for_ppo": frozenset((BOXED,)),
    "math_17k_acc": frozenset((BOXED,)),
    "retool_reward": frozenset((BOXED,)),
    "acc_for_dapo": frozenset((LABEL,)),  # is_correct_minerva: what stands after the last "Answer:"
    "base_acc": frozenset((BOXED, TAGS)),
    "math_verify_reward": frozenset((BOXED, TAGS)),
    "strict_format": frozenset((BOXED, TAGS)),
    "format": frozenset((TAGS,)),
    "step": frozenset(),  # "Step 1:", numbered lists, First, Next: asked for or not
}
"""Verifier -> forms that a completion must have to earn it."""
BLIND = ("format", "strict_format", "step")
"""Verifiers that never look at the ground truth."""
REQUESTED: Mapping[str, frozenset[str]] = {
    "qwen_r1": frozenset((BOXED, TAGS)),
    "qwen_math_r1": frozenset((BOXED,)),
}
"""Shipped template -> forms that it asks for; the others of the contract ask for none."""
_SIGNS = {BOXED: ("\\boxed",), TAGS: ("<think>", "<answer>"), LABEL: ("Answer:",)}


def warnings(engine: MindspeedRlEngine) -> list[Problem]:
    """Return problems of verifiers that the prompt does not ask for, and of constant rewards."""
    weights = dict(zip(engine.verifier_function, engine.verifier_weight, strict=True))
    names = [name for name, weight in weights.items() if weight > 0 and name in NEEDS]
    requested = forms(engine)
    problems = []
    for name in names:
        missing = [form for form in (BOXED, TAGS, LABEL) if form in NEEDS[name] - requested]
        if missing:
            rule = (
                f"can't be earned: it reads {' and '.join(missing)} (rule_verifier.py), which "
                f"engine.prompt_type={engine.prompt_type} does not ask for ({contract.TEMPLATES})"
            )
            problems.append(Problem("engine.verifier_function", name, rule, _remedy(name, requested)))
    if names and all(name in BLIND for name in names):
        rule = "scores a wrong answer as a right one: it looks at the form alone (rule_verifier.py)"
        problems.append(
            Problem("engine.verifier_function", ", ".join(names), rule, "add math_17k_acc or base_acc")
        )
    return problems


def forms(engine: MindspeedRlEngine) -> frozenset[str]:
    """Return the answer forms that the prompt requests; for a checkout's template, judged by its words."""
    template = (
        contract.template(engine.mindspeed_rl_home, engine.prompt_type) if engine.mindspeed_rl_home else {}
    )
    if not template:
        return REQUESTED.get(engine.prompt_type, frozenset())
    text = "\n".join(_texts(template))
    return frozenset(form for form, signs in _SIGNS.items() if all(sign in text for sign in signs))


def _texts(template: Mapping[str, Any]) -> list[str]:
    """Return the fixed texts of a template's first turn: system prompt, and text around the question."""
    user = template.get("format_user") or {}
    slots = [slot for slot in user.get("slots", []) if isinstance(slot, str)]
    return [str(template.get("default_system") or ""), *slots]


def _remedy(name: str, requested: frozenset[str]) -> str:
    for prompt_type, forms in REQUESTED.items():
        if NEEDS[name] <= forms:
            return f"set engine.prompt_type={prompt_type}"
    return (
        "use math_17k_acc" if BOXED in requested else "use math_17k_acc with engine.prompt_type=qwen_math_r1"
    )
