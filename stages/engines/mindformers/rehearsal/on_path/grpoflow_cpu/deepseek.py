"""Generation of DeepSeek-V3 on a CPU, with the network that mindformers trains.

The network for generation has fused projections and transposed experts. Its parameters are kept, because
mindrlhf copies the trained weights into them; before completions they are taken apart for the other network.

Source: mindformers 051d65f, research/deepseek3/deepseek3_model_infer.py and deepseek3_train2infer.py.
Shapes: N heads, D rows of a head, E experts, W width of an expert, H elements of a token's state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from .cells import LastLogits

Array = np.ndarray[Any, Any]
PLAIN = {
    "self_attn.q_a_proj": "attention.q2l_proj",
    "self_attn.q_a_layernorm": "attention.lq_norm",
    "self_attn.kv_a_layernorm": "attention.lkv_norm",
    "self_attn.o_proj": "attention.wo",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.shared_experts.gate_proj": "feed_forward.shared_experts.w1",
    "mlp.shared_experts.up_proj": "feed_forward.shared_experts.w3",
    "mlp.shared_experts.down_proj": "feed_forward.shared_experts.w2",
    "mlp.gate": "feed_forward.routed_experts.router.dense",
}
"""Part of a layer at Hugging Face -> in generation, where only the name differs."""
EXPERTS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
ROUTED = "feed_forward.routed_experts"
WHOLE = {
    "model.embed_tokens.weight": "model.tok_embeddings.embedding_weight",
    "model.norm.weight": "model.norm_out.weight",
    "lm_head.weight": "lm_head.weight",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"mlp\.experts\.(\d+)\.(\w+)\.weight")


class Weights(nn.Cell):  # type: ignore[misc]
    """Parameters by name, which mindrlhf finds and assigns to."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__()
        parameters = [ms.Parameter(ms.Tensor(value), name=name) for name, value in values.items()]
        self.held = ms.ParameterTuple(parameters)

    def values(self) -> dict[str, Array]:
        """Return the values by the names that they were given."""
        return {name: value.asnumpy() for name, value in self._params.items()}


class LastLogitsOfTraining(LastLogits):
    """Logits of the network for training, which also returns a loss of its routers."""

    def states(self, tokens: Any) -> Any:
        """Return the states alone."""
        states, _ = self.backbone(tokens, extra_loss=0.0)
        return states


class DeepseekV3ForCausalLM:
    """Model whose `network` mindrlhf takes and into which it copies the policy's weights."""

    def __init__(self, settings: Any, seq_length: int, weights: Iterable[tuple[str, Any]]) -> None:
        """Read the Hugging Face tensors; `settings`: the content of predict.yaml."""
        from research.deepseek3.deepseek3_config import DeepseekV3Config
        from research.deepseek3.deepseek3_model_train import TrainingDeepseekV3ForCausalLM

        config = settings.model.model_config
        config.parallel_config, config.seq_length = settings.parallel_config, seq_length
        config.use_past, config.is_dynamic, config.return_extra_loss = False, False, False
        # the network for generation routes like this without being told, and drops no token
        experts = config.moe_config = settings.moe_config  # build_parallel_config made it an object
        experts.use_gating_sigmoid = experts.balance_via_topk_bias = experts.enable_sdrop = True
        experts.topk_method, experts.capacity_factor = "noaux_tc", float(experts.expert_num)
        self.shape, self.seq_length = DeepseekV3Config(**config), seq_length
        self.computing = TrainingDeepseekV3ForCausalLM(self.shape)
        self.computing.set_train(False)
        self.step = LastLogitsOfTraining(self.computing)
        self.step.set_train(False)
        self.network = Weights(self.fused({name: value.asnumpy() for name, value in weights}))
        self.kv_caches: list[Any] = []

    def logits(self, tokens: Array, last: Array) -> Array:
        """Return logits [rows, vocabulary] of one position of each row [rows, positions]."""
        padded = np.zeros((tokens.shape[0], self.seq_length), np.int32)
        padded[:, : tokens.shape[1]] = tokens
        result: Array = self.step(ms.Tensor(padded), ms.Tensor(last.astype(np.int32))).asnumpy()
        return result

    def refresh(self) -> None:
        """Hand the parameters to the network that computes."""
        parameters = {name: ms.Parameter(value) for name, value in self.apart(self.network.values())}
        missing, _ = ms.load_param_into_net(self.computing, parameters)
        if lost := [name for name in missing if not name.endswith(".expert_load")]:
            raise ValueError(f"generation has no {lost}")

    def fused(self, stored: Mapping[str, Array]) -> dict[str, Array]:
        """Return the parameters of generation from the tensors at Hugging Face."""
        heads, rope = self.shape.num_heads, self.shape.qk_rope_head_dim
        result: dict[str, Array] = {}
        experts: dict[str, dict[int, Array]] = {}
        for name, value in stored.items():
            found = _LAYER.fullmatch(name)
            if found is None:
                result[WHOLE[name]] = value
                continue
            layer, part = f"model.layers.{found[1]}", found[2]
            if int(found[1]) >= self.shape.num_layers:
                continue  # predicts a second token ahead
            if of := _EXPERT.fullmatch(part):
                experts.setdefault(f"{layer}.{ROUTED}.ffn.{EXPERTS[of[2]]}.weight", {})[int(of[1])] = value
            elif part == "mlp.gate.e_score_correction_bias":
                result[f"{layer}.{ROUTED}.router.e_score_correction_bias"] = value
            elif part == "self_attn.q_b_proj.weight":
                result[f"{layer}.attention.l2q_proj.weight"] = halves(value, heads, rope)
            elif part == "self_attn.kv_a_proj_with_mqa.weight":
                result[f"{layer}.attention.kv2l.weight"] = halves(value, 1, rope)
            elif part == "self_attn.kv_b_proj.weight":
                keys, values = apart(value, heads, self.shape.qk_nope_head_dim)
                result[f"{layer}.attention.lkv2kv_k_nope.weight"] = keys
                result[f"{layer}.attention.lkv2kv_v.weight"] = values
            else:
                result[f"{layer}.{PLAIN[part.removesuffix('.weight')]}.weight"] = value
        for name, of_layer in experts.items():  # [E, in, out]
            result[name] = np.stack([of_layer[number].T for number in range(len(of_layer))])
        return result

    def apart(self, held: Mapping[str, Array]) -> Iterator[tuple[str, Any]]:
        """Yield the parameters of training from those of generation."""
        heads, nope, latent = self.shape.num_heads, self.shape.qk_nope_head_dim, self.shape.kv_lora_rank
        for name, value in held.items():
            if name.endswith("attention.l2q_proj.weight"):
                parts = zip(("l2q_nope_proj", "l2q_pe_proj"), apart(value, heads, nope), strict=True)
                yield from ((name.replace("l2q_proj", part), ms.Tensor(rows)) for part, rows in parts)
            elif name.endswith("attention.kv2l.weight"):
                parts = zip(("kv2l_latent_kv", "kv2l_k_pe"), apart(value, 1, latent), strict=True)
                yield from ((name.replace("kv2l", part), ms.Tensor(rows)) for part, rows in parts)
            elif f"{ROUTED}.ffn." in name:
                yield name, ms.Tensor(np.ascontiguousarray(value.transpose(0, 2, 1)))
            else:
                renamed = name.replace("router.e_score_correction_bias", "router.router.topk_bias")
                yield renamed, ms.Tensor(value)


def apart(value: Array, heads: int, first: int) -> tuple[Array, Array]:
    """Return the first rows of each head of [N * D, H], and the others."""
    rows = value.reshape(heads, -1, value.shape[-1])
    return tuple(part.reshape(-1, value.shape[-1]) for part in (rows[:, :first], rows[:, first:]))  # type: ignore[return-value]


def halves(value: Array, heads: int, rope: int) -> Array:
    """Return [N * D, H] with a head's last `rope` rows in mindformers' order: even ones, then odd ones."""
    rows = value.reshape(heads, -1, value.shape[-1])
    kept, turned = rows[:, :-rope], rows[:, -rope:]
    arranged: Array = np.concatenate([kept, turned[:, 0::2], turned[:, 1::2]], 1)
    return arranged.reshape(value.shape)
