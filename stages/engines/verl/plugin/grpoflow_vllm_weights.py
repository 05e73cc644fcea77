"""vLLM on a CPU for verl: keep linear weights in a form that can be loaded again.

vLLM calls `keep_weights` in each of its processes (entry point vllm.general_plugins of the metadata that
stages/engines/verl/inference.py renders). verl loads new weights into layer.weight
(workers/rollout/vllm_rollout/utils.py, update_weights_from_ipc), which vLLM empties on a CPU after it has
packed them for oneDNN (vllm/model_executor/layers/utils.py, dispatch_cpu_unquantized_gemm). Without oneDNN
it keeps them.
"""
# mypy: ignore-errors


def keep_weights():
    """Let vLLM compute linear layers with torch instead of oneDNN."""
    import vllm._custom_ops

    vllm._custom_ops._supports_onednn = False
