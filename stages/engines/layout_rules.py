"""Rules for layouts that hold for every engine."""

from collections.abc import Mapping
from dataclasses import dataclass

from stages.base.layout import RoleLayout
from stages.base.rules import Broken, Rules
from stages.models.config import ModelConfig
from stages.models.families import family_of


@dataclass(frozen=True)
class Laid:
    """A model and the layouts of its roles."""

    model: ModelConfig
    layout: Mapping[str, RoleLayout]
    """Layouts by role."""
    seq_length: int
    """Tokens of a training row."""

    def experts(self) -> int:
        """Return the number of experts per layer; 0 if there are none."""
        experts = family_of(self.model).experts
        return experts(self.model).count if experts else 0


RULES = Rules[Laid]("engine_layouts")


@RULES.row("layout.{}.expert_parallel", "ours: stages/models", each=lambda laid: laid.layout)
def _no_experts(laid: Laid, role: str) -> Broken:
    if laid.experts() or laid.layout[role].expert_parallel == 1:
        return None
    return f"{family_of(laid.model).title} has no experts", "set it to 1"
