"""The strategy stage: MindSpore strategy files of all roles, from model and layout alone."""

import sys
from pathlib import Path

from stages.base.context import Context
from stages.base.layout import ROLES, LayoutConfig, RoleLayout
from stages.models.config import ModelConfig
from stages.models.layouts import parameter_layouts, warnings, with_clones
from stages.weights.config import SplitConfig
from stages.weights.strategy.files import MERGED_DIRECTORY, MERGED_NAME, encode

# mindrlhf e8a8fc1 names each role's parameters as they hang in its network of that role.
_MINDRLHF_PREFIX = {
    "train": "grpo_model_train.policy_model.model.",
    "generate": "grpo_model.policy_model.model.",
    "reference": "model.",
}
_MINDRLHF_NAME = {"train": "train_policy", "generate": "infer_policy", "reference": "infer_ref"}


def run(context: Context) -> None:
    """Write {role}_strategy/ for train, generate and reference, or for the roles that split cuts alone."""
    model, layout = context.section(ModelConfig, "model"), context.section(LayoutConfig, "layout")
    roles = context.section(SplitConfig, "split").chosen_roles if "split" in context.config else ROLES
    for i, role in enumerate(roles):
        for warning in warnings(model, layout.role(role)):
            print(f"warning: layout.{role}: {warning}", file=sys.stderr)
        write_strategy(model, layout.role(role), context.output / f"{role}_strategy", f"layout.{role}")
        context.progress(i + 1, len(roles), f"{role}_strategy", "roles")


def write_strategy(
    model: ModelConfig, layout: RoleLayout, out: Path, path: str = "layout", role: str | None = None
) -> None:
    """Write one role's strategy files.

    Args:
        model: the model.
        layout: of the role.
        out: made if missing; files of an earlier layout of this role are removed.
        path: config path of `layout`, for messages.
        role: None: mindformers' names, out/ckpt_strategy_rank_R.ckpt and out/merged_ckpt_strategy.ckpt.
            A role: mindrlhf's, out/train_policy_strategy/strategy_R.ckpt and
            out/merge_strategy/train_policy_merged_strategy.ckpt (infer_policy and infer_ref for the
            other roles), with its prefix before every parameter.

    Raises:
        ConfigError: the layout does not fit the model.
    """
    prefix = "" if role is None else _MINDRLHF_PREFIX[role]
    plain = parameter_layouts(model, layout, path)
    stages = [with_clones({prefix + name: tensor for name, tensor in part.items()}) for part in plain]
    ranks, merged = out / "ckpt_strategy_rank_{}.ckpt", out / MERGED_NAME
    if role is not None:
        name = _MINDRLHF_NAME[role]
        ranks = out / f"{name}_strategy" / "strategy_{}.ckpt"
        merged = out / MERGED_DIRECTORY / f"{name}_merged_strategy.ckpt"
    for file in (ranks, merged):
        file.parent.mkdir(parents=True, exist_ok=True)
    merged.unlink(missing_ok=True)  # written last: until then there is no layout here
    for left in ranks.parent.glob(ranks.name.format("[0-9]*")):  # another layout's, which readers would take
        left.unlink()
    cards = layout.cards // layout.pipeline_stage
    for stage, tensors in enumerate(stages):
        content = encode({stage: tensors})
        for rank in range(stage * cards, (stage + 1) * cards):
            ranks.with_name(ranks.name.format(rank)).write_bytes(content)
    merged.write_bytes(encode(dict(enumerate(stages)), prefixed=True))
