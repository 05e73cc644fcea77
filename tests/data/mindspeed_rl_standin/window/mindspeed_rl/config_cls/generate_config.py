"""Keys of the section that upstream's class of the same name reads, with their defaults."""

from standin_config import Section


class GenerateConfig(Section):
    def __init__(self, config_dict):
        self.data_parallel_size = None
        self.tokenizer_name_or_path = "/path/to/tokenizer"
        self.trust_remote_code = True
        self.infer_tensor_parallel_size = 8
        self.infer_pipeline_parallel_size = 1
        self.infer_expert_parallel_size = 1
        self.max_num_seqs = 1
        self.max_model_len = 2048
        self.max_num_batched_tokens = 2048
        self.dtype = "bfloat16"
        self.gpu_memory_utilization = 0.5
        self.offload_train_optimizer = False
        self.offload_train_grad = False
        self.offload_train_param = False
        self.enable_prefix_caching = False
        self.num_scheduler_steps = 1
        self.enforce_eager = False
        self.sampling_config = {
            "logprobs": 1,
            "max_tokens": 128,
            "top_p": 1.0,
            "top_k": 50,
            "min_p": 0.0,
            "temperature": 0.2,
            "detokenize": False,
            "seed": None,
        }
        self.update(config_dict)
