"""Arguments of vLLM."""

from dataclasses import dataclass, field


@dataclass
class EngineArgs:
    """Some arguments."""

    model: str = "x"
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    compilation_config: dict = field(default_factory=dict)
