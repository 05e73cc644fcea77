"""Code of mindformers that on_path/grpoflow_cpu replaces."""

from stages.engines.rehearsal import SourceLocation

COMMIT = "051d65f"
LOCATIONS = tuple(
    SourceLocation(f"mindformers/{file}", code, replacement, (COMMIT,))
    for file, code, replacement in (
        ("version_control.py", "check_rmsnorm_big_kernel_valid()", "mindformers_cpu.plain_rms_norm"),
        ("models/llama/llama_layer.py", "check_rmsnorm_big_kernel_valid()", "mindformers_cpu.plain_rms_norm"),
        ("modules/flash_attention.py", "actual_seq_qlen=None, actual_seq_kvlen=None",
         "mindformers_cpu.plain_attention"),
        ("models/llama/llama_transformer.py", 'self.input_layout = "TND"', "attention.FlashAttention"),
        ("models/llama/llama_config.py", "use_rope_slice: bool = False", "mindformers_cpu.single_precision"),
        ("modules/layers.py", "def slice_half(self, x)", "mindformers_cpu.single_precision"),
        ("generation/logits_process.py", "def run_using_numpy()", "mindformers_cpu.sample_with_numpy"),
    )
)  # fmt: skip
