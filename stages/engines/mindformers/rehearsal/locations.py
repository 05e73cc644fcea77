"""The places of mindformers that on_path/grpoflow_cpu stands on."""

from stages.engines.rehearsal import SourceLocation

COMMIT = "051d65f"
LOCATIONS = tuple(
    SourceLocation(f"mindformers/{file}", within, words, why, {COMMIT: line})
    for file, within, words, why, line in (
        ("version_control.py", "check_rmsnorm_big_kernel_valid", "check_rmsnorm_big_kernel_valid()",
         "mindformers_cpu.plain_rms_norm", 288),
        ("models/llama/llama_layer.py", "LlamaRMSNorm", "check_rmsnorm_big_kernel_valid()",
         "mindformers_cpu.plain_rms_norm", 194),
        ("modules/flash_attention.py", "FlashAttention.construct",
         "actual_seq_qlen=None, actual_seq_kvlen=None", "mindformers_cpu.plain_attention", 301),
        ("models/llama/llama_transformer.py", "LLamaAttention", 'self.input_layout = "TND"',
         "attention.FlashAttention", 419),
        ("models/llama/llama_config.py", "LlamaConfig.__init__", "use_rope_slice: bool = False",
         "mindformers_cpu.single_precision", 166),
        ("modules/layers.py", "RotaryEmbedding", "def slice_half(self, x)",
         "mindformers_cpu.single_precision", 1514),
        ("generation/logits_process.py", "run_using_numpy", "def run_using_numpy()",
         "mindformers_cpu.sample_with_numpy", 37),
    )
)  # fmt: skip
