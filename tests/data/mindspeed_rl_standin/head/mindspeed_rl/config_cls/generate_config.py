from standin_config import Section


class GenerateConfig(Section):
    trust_remote_code = infer_tensor_parallel_size = infer_pipeline_parallel_size = None
    infer_expert_parallel_size = max_num_seqs = max_model_len = max_num_batched_tokens = dtype = None
    gpu_memory_utilization = offload_train_optimizer = offload_train_grad = offload_train_param = None
    sampling_config = enforce_eager = None
