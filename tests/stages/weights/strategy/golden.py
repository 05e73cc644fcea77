"""Golden cases: what MindSpore 2.7.0's front end wrote for mindformers 1.6.0's LlamaForCausalLM."""

import json
import math
from pathlib import Path

from stages.base.layout import RoleLayout
from stages.models.config import ModelConfig
from stages.models.families import parameter_shapes
from stages.weights.strategy.files import Strategy
from tests.stages.weights.checkpoints import make_layout, make_model

COPIES = Path(__file__).parents[3] / "data" / "strategy"
RAW = COPIES / "raw_d1m2p2"


def cases() -> list[Path]:
    return sorted(COPIES.glob("*.json"))


def load(file: Path, **changes: object) -> tuple[ModelConfig, RoleLayout, dict]:
    """Model, layout and {stage: {parameter: fields}} of one case."""
    values = json.loads(file.read_text())
    renames = {
        "num_heads": "num_attention_heads",
        "n_kv_heads": "num_key_value_heads",
        "num_layers": "num_hidden_layers",
    }
    model = make_model(**({renames.get(key, key): value for key, value in values["model"].items()} | changes))
    layout = dict(values["layout"])
    layout["offset"] = tuple(layout["offset"] or ()) if isinstance(layout["offset"], list) else ()
    return model, make_layout(**layout), values["stages"]


def held(model: ModelConfig, stages: dict) -> list[int]:
    """Elements that a card of each pipeline stage holds by MindSpore's own layouts."""
    shapes = parameter_shapes(model, model.qkv_concat)
    result = []
    for tensors in stages.values():
        count = 0
        for name, layout in tensors.items():
            axes = [layout["dev_matrix"][-1 - axis] for axis in layout["tensor_map"] if axis != -1]
            parts, size = math.prod(axes), layout["opt_weight_shard_size"]
            if size == -1:
                size = math.prod(layout["dev_matrix"]) // parts
            count += math.prod(shapes[name]) // (parts * (size or 1))
        result.append(count)
    return result


def fields(strategy: Strategy) -> dict[str, dict[str, dict]]:
    """A Strategy in the golden files' form, without optimizer clones."""
    result: dict[str, dict[str, dict]] = {str(stage): {} for stage in range(strategy.stages)}
    for name, layout in strategy.tensors.items():
        if not name.startswith(("adam_m.", "adam_v.", "accu_grads.")):
            for stage in layout.stages:
                result[str(stage)][name] = {
                    "dev_matrix": list(layout.dev_matrix),
                    "tensor_map": list(layout.tensor_map),
                    "opt_weight_shard_step": layout.opt_weight_shard_step,
                    "opt_weight_shard_size": layout.opt_weight_shard_size,
                }
    return result
