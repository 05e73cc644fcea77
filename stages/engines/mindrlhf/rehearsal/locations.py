"""The places of mindrlhf that grpoflow_cpu (stages/engines/mindformers/rehearsal/on_path) stands on."""

from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.rehearsal import SourceLocation

_VLLM = "mindrlhf/third_party/vllm"
_PATCHES, _STATE = (f"{_VLLM}/vllm_v_general/{name}.py" for name in ("__init__", "parallel_state"))
_TRAINER = "mindrlhf/trainer/spmd/grpo_trainer.py"
_TRAIN, _INFER, _RESHARD = (f"mindrlhf/worker/{name}_worker.py" for name in ("train", "infer", "transform"))
_STRATEGY = "mindrlhf/utils/strategy_utils.py"
_TOKENIZER = "mindrlhf/models/qwen2_5/qwen2_5_tokenizer.py"
_TOKENIZER_BEFORE = "mindrlhf/models/qwen2/qwen2_tokenizer.py"
_INITIALIZE = "initialize_parallel_state"
LOCATIONS = tuple(
    SourceLocation(file, within, words, why, dict(zip(VERSIONS, lines, strict=True)))
    for file, within, words, why, lines in (  # lines in VERSIONS' order; None: that version has none
        (_TRAINER, "GRPOTrainer", "get_ascend_soc_version()", "mindspore_cpu.name_a_card", (166, None)),
        (_STATE, _INITIALIZE, "get_ascend_soc_version()", "mindspore_cpu.name_a_card", (None, 123)),
        (_STATE, _INITIALIZE, "ascend.device_count()", "mindspore_cpu.count_workers_as_cards", (125, None)),
        (_RESHARD, "TransformWorker", "comm_func.barrier()", "mindspore_cpu.gather_on_cpu", (231, 230)),
        (_INFER, "InferWorker._allgather_data", "comm_func.all_gather_into_tensor(",
         "mindspore_cpu.gather_on_cpu", (268, 264)),
        (_STRATEGY, "generate_state_dict", "generate_state_dict(network)",
         "mindspore_cpu.write_strategy_files", (54, 45)),
        (_STRATEGY, "save_strategy_file", "(state_dict, reshard_optimizer, strategy_file_name)",
         "mindspore_cpu.write_strategy_files", (78, 68)),
        (_TRAIN, "TrainWorker", "strategy_ckpt_config={", "mindspore_cpu.compute_whole", (183, 183)),
        (_INFER, "InferWorker.generate_strategy", 'stage_name = "other"',
         "mindspore_cpu.write_strategy_files", (423, 419)),
        ("mindrlhf/models/base_model.py", "BaseModel.select_actor_model",
         "ParallelQwenForCausalLM(model_config)", "mindrlhf_cpu.generate_without_cache", (53, 55)),
        (_INFER, "InferWorker.generate", "= self.grpo_model_infer.grpo_model.policy_model.model.generate(",
         "mindrlhf_cpu.answer_some", (353, 349)),
        (_TOKENIZER, "", "ENDOFTEXTID = 151643", "mindrlhf_cpu.ids_of_tiny_vocabulary", (70, None)),
        (_TOKENIZER_BEFORE, "", "ENDOFTEXTID = 151643", "mindrlhf_cpu.ids_of_tiny_vocabulary", (None, 51)),
        (f"{_VLLM}/__init__.py", "", 'version("vllm")', "hooks.VLLM_VERSION", (23, 23)),
        (_INFER, "InferWorker", "self.inference_engine = LLM(", "vllm.LLM", (197, 196)),
        (_INFER, "InferWorker", "= model_runner.model.network", "vllm.LLM", (215, 214)),
        (_INFER, "InferWorker", "SamplingParams(", "vllm.SamplingParams", (229, 228)),
        (_INFER, "InferWorker", "prompt_token_ids=token_ids", "vllm.LLM.generate", (536, 518)),
        (_INFER, "InferWorker", "Qwen2ForCausalLM.load_weights =", "network.Qwen2ForCausalLM", (167, None)),
        (_PATCHES, "", "GPUModelRunner.initialize_kv_cache =", "vllm.GPUModelRunner", (28, 28)),
        (_TRAINER, "GRPOTrainer", 'os.environ["MINDFORMERS_MODEL_CONFIG"] =',
         "network.Qwen2ForCausalLM", (185, 160)),
    )
)  # fmt: skip
