"""Changes of mindformers 1.6: operators without a CPU kernel are replaced by equivalent ones."""

from __future__ import annotations

import functools
from typing import Any

HALF = ("bfloat16", "float16")
DTYPES = ("compute_dtype", "param_init_type", "softmax_compute_type")


def plain_rms_norm(module: Any) -> None:
    """Choose LlamaRMSNorm's plain branch: the fused RmsNorm has no CPU kernel."""
    module.check_rmsnorm_big_kernel_valid = lambda: False


def plain_attention(module: Any) -> None:
    """Replace FlashAttentionScore."""
    from . import attention

    module.FlashAttention = attention.FlashAttention


def single_precision(module: Any) -> None:
    """Compute in float32, and rotate by slices: BatchMatMul does not broadcast on a CPU (rotate_half)."""
    original = module.LlamaConfig.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **settings: Any) -> None:
        halves = {name: "float32" for name in DTYPES if settings.get(name) in HALF}
        original(self, *arguments, **{**settings, **halves, "use_rope_slice": True})

    module.LlamaConfig.__init__ = init


def single_precision_with_experts(module: Any) -> None:
    """Compute DeepSeek-V3 in float32, with the attention of plain operations that its network has."""
    original = module.DeepseekV3Config.__init__
    names = (*DTYPES, "layernorm_compute_type", "rotary_dtype")

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **settings: Any) -> None:
        halves = {name: "float32" for name in names if settings.get(name) in HALF}
        original(self, *arguments, **{**settings, **halves, "use_flash_attention": False})

    module.DeepseekV3Config.__init__ = init


def route_by_sorting(module: Any) -> None:
    """Let experts be chosen by sorting, as mindformers can: TopKRouter has no CPU kernel."""
    original = module.MoEConfig.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **settings: Any) -> None:
        plain = {"use_fused_ops_topkrouter": False, "router_dense_type": "float32"}
        original(self, *arguments, **{**settings, **plain})

    module.MoEConfig.__init__ = init


def multiply_experts(module: Any) -> None:
    """Multiply experts without broadcasting."""
    from . import cells

    original = module.Linear.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **settings: Any) -> None:
        original(self, *arguments, **settings)
        if self.expert_flag and not self.use_gmm:
            self.matmul = cells.ExpertProduct(self.transpose_b)

    module.Linear.__init__ = init


def rotate_by_slices(module: Any) -> None:
    """Rotate by slices: BatchMatMul does not broadcast on a CPU."""

    def rotate_half(self: Any, x: Any, swap_mask: Any) -> Any:
        return self.slice_half(x)

    module.DeepSeekV2RotaryEmbedding.rotate_half = rotate_half


def sample_with_numpy(module: Any) -> None:
    """Sample with NumPy, as mindformers can: SortExt and CumsumExt have no CPU kernel."""
    module.run_using_numpy = lambda: True


def read_single_rows(module: Any) -> None:
    """Switch off sink mode of run_mindformer.py, with which a CPU would train epochs instead of steps."""
    original = module.MindFormerConfig.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **settings: Any) -> None:
        original(self, *arguments, **settings)
        if "runner_config" in self and "sink_mode" in self.runner_config:
            self.runner_config.sink_mode = False

    module.MindFormerConfig.__init__ = init


CHANGES = {
    "mindformers.tools.register.config": read_single_rows,
    "mindformers.version_control": plain_rms_norm,
    "mindformers.modules.flash_attention": plain_attention,
    "mindformers.models.llama.llama_config": single_precision,
    "mindformers.modules.transformer.moe": route_by_sorting,
    "mindformers.modules.layers": multiply_experts,
    "research.deepseek3.deepseek3_config": single_precision_with_experts,
    "research.deepseek3.deepseek2_model": rotate_by_slices,
    "mindformers.generation.logits_process": sample_with_numpy,
}
