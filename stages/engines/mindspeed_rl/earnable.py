"""Warnings about rule rewards that no completion earns, or that ignore the ground truth.

NEEDS and REQUESTED were read in Ascend/MindSpeed-RL at 05a90d7 and 667a547: models/rule_verifier.py,
models/math_dapo.py, configs/model/templates.json. A model seldom answers in a form that the prompt does not
request; then all completions of a group get the same reward, and nothing is learnt.
"""

from collections.abc import Mapping

from stages.base.errors import Problem
from stages.engines.mindspeed_rl import contract
from stages.engines.mindspeed_rl.config import MindspeedRlEngine

BOXED, TAGS, LABEL = "\\boxed{}", "<think> and <answer>", "Answer:"
NEEDS: Mapping[str, frozenset[str]] = {
    "acc": frozenset((BOXED,)),  # -1 without "boxed", -0.5 where it is wrong
    "acc_for_ppo": frozenset((BOXED,)),
    "math_17k_acc": frozenset((BOXED,)),
    "retool_reward": frozenset((BOXED,)),
    "acc_for_dapo": frozenset((LABEL,)),  # is_correct_minerva: the text after the last "Answer:"
    "base_acc": frozenset((BOXED, TAGS)),
    "math_verify_reward": frozenset((BOXED, TAGS)),
    "strict_format": frozenset((BOXED, TAGS)),
    "format": frozenset((TAGS,)),
    "step": frozenset(),  # "Step 1:", numbered lists, First, Next: common without a request
}
"""Verifier -> forms that a completion must have to earn it."""
FORM_ONLY = ("format", "strict_format", "step")
"""Verifiers that ignore the ground truth."""
REQUESTED: Mapping[str, frozenset[str]] = {
    "qwen_r1": frozenset((BOXED, TAGS)),
    "qwen_math_r1": frozenset((BOXED,)),
}
"""Shipped template -> forms that it requests; the other shipped templates request none."""
_SIGNS = {BOXED: ("\\boxed",), TAGS: ("<think>", "<answer>"), LABEL: ("Answer:",)}


def warnings(engine: MindspeedRlEngine) -> list[Problem]:
    """Return problems of verifiers whose form the prompt does not request, and of constant rewards."""
    weights = dict(zip(engine.verifier_function, engine.verifier_weight, strict=True))
    names = [name for name, weight in weights.items() if weight > 0 and name in NEEDS]
    requested = requested_forms(engine)
    problems = []
    for name in names:
        missing = [form for form in (BOXED, TAGS, LABEL) if form in NEEDS[name] - requested]
        if missing:
            rule = (
                f"can't be earned: it reads {' and '.join(missing)} (rule_verifier.py), which "
                f"engine.prompt_type={engine.prompt_type} does not request ({contract.TEMPLATES})"
            )
            problems.append(Problem("engine.verifier_function", name, rule, _remedy(name, requested)))
    if names and all(name in FORM_ONLY for name in names):
        rule = "gives wrong and right answers the same reward: it reads only the form (rule_verifier.py)"
        remedy = "add math_17k_acc or base_acc"
        problems.append(Problem("engine.verifier_function", ", ".join(names), rule, remedy))
    return problems


def requested_forms(engine: MindspeedRlEngine) -> frozenset[str]:
    """Return the answer forms that the prompt requests, judged by the words of a checkout's template."""
    home, name = engine.mindspeed_rl_home, engine.prompt_type
    template = contract.template(home, name) if home else {}
    if not template:
        return REQUESTED.get(name, frozenset())
    slots = (template.get("format_user") or {}).get("slots", [])
    text = f"{template.get('default_system')}\n{slots}"
    return frozenset(form for form, signs in _SIGNS.items() if all(sign in text for sign in signs))


def _remedy(name: str, requested: frozenset[str]) -> str:
    for prompt_type, forms in REQUESTED.items():
        if NEEDS[name] <= forms:
            return f"set engine.prompt_type={prompt_type}"
    return (
        "use math_17k_acc" if BOXED in requested else "use math_17k_acc and engine.prompt_type=qwen_math_r1"
    )
