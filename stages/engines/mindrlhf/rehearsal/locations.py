"""Code of mindrlhf that grpoflow_cpu (stages/engines/mindformers/rehearsal/on_path) replaces."""

from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.rehearsal import SourceLocation

_VLLM = "mindrlhf/third_party/vllm"
_PATCHES, _STATE = (f"{_VLLM}/vllm_v_general/{name}.py" for name in ("__init__", "parallel_state"))
_TRAINER = "mindrlhf/trainer/spmd/grpo_trainer.py"
_TRAIN, _INFER, _RESHARD = (f"mindrlhf/worker/{name}_worker.py" for name in ("train", "infer", "transform"))
_STRATEGY = "mindrlhf/utils/strategy_utils.py"
_NEW, _OLD = (VERSIONS[:1], VERSIONS[1:])
LOCATIONS = tuple(
    SourceLocation(*location)
    for location in (
        (_TRAINER, "get_ascend_soc_version()", "mindspore_cpu.name_a_card", _NEW),
        (_STATE, "get_ascend_soc_version()", "mindspore_cpu.name_a_card", _OLD),
        (_STATE, "ascend.device_count()", "mindspore_cpu.count_workers_as_cards", _NEW),
        (_RESHARD, "comm_func.barrier()", "mindspore_cpu.gather_on_cpu", VERSIONS),
        (_INFER, "comm_func.all_gather_into_tensor(", "mindspore_cpu.gather_on_cpu", VERSIONS),
        (_STRATEGY, "generate_state_dict(network)", "mindspore_cpu.write_strategy_files", VERSIONS),
        (_STRATEGY, "(state_dict, reshard_optimizer, strategy_file_name)",
         "mindspore_cpu.write_strategy_files", VERSIONS),
        (_TRAIN, "strategy_ckpt_config={", "mindspore_cpu.compute_unsharded", VERSIONS),
        (_INFER, 'stage_name = "other"', "mindspore_cpu.write_strategy_files", VERSIONS),
        ("mindrlhf/models/base_model.py", "ParallelQwenForCausalLM(model_config)",
         "mindrlhf_cpu.generate_without_cache", VERSIONS),
        (_INFER, "= self.grpo_model_infer.grpo_model.policy_model.model.generate(",
         "mindrlhf_cpu.answer_some", VERSIONS),
        ("mindrlhf/models/qwen2_5/qwen2_5_tokenizer.py", "ENDOFTEXTID = 151643",
         "mindrlhf_cpu.ids_of_tiny_vocabulary", _NEW),
        ("mindrlhf/models/qwen2/qwen2_tokenizer.py", "ENDOFTEXTID = 151643",
         "mindrlhf_cpu.ids_of_tiny_vocabulary", _OLD),
        (f"{_VLLM}/__init__.py", 'version("vllm")', "hooks.VLLM_VERSION", VERSIONS),
        (_INFER, "self.inference_engine = LLM(", "vllm.LLM", VERSIONS),
        (_INFER, "= model_runner.model.network", "vllm.LLM", VERSIONS),
        (_INFER, "SamplingParams(", "vllm.SamplingParams", VERSIONS),
        (_INFER, "prompt_token_ids=token_ids", "vllm.LLM.generate", VERSIONS),
        (_INFER, "Qwen2ForCausalLM.load_weights =", "network.Qwen2ForCausalLM", _NEW),
        (_PATCHES, "GPUModelRunner.initialize_kv_cache =", "vllm.GPUModelRunner", VERSIONS),
        (_TRAINER, 'os.environ["MINDFORMERS_MODEL_CONFIG"] =', "network.Qwen2ForCausalLM", VERSIONS),
    )
)  # fmt: skip
