"""The places of upstream that on_path/sitecustomize.py stands on; line numbers of 667a547 are c21465a's."""

from stages.engines.mindspeed_rl.config import VERSIONS
from stages.engines.rehearsal import SourceLocation

_ROLLOUT = "mindspeed_rl/models/rollout/vllm_engine.py"
_SCHEDULER = "mindspeed_rl/workers/scheduler"
LOCATIONS = tuple(
    SourceLocation(file, code, replacement, versions)
    for file, code, replacement, versions in (
        ("cli/train_grpo.py", "if not torch.cuda.is_available():", "cuda_means_this_device", VERSIONS),
        ("megatron/training/checkpointing.py", "'cuda_rng_state': torch.cuda.get_rng_state(),",
         "cuda_means_this_device", VERSIONS),
        (_ROLLOUT, "from torch_npu.contrib import transfer_to_npu", "cuda_means_this_device", VERSIONS),
        (_ROLLOUT, "from vllm import LLM, SamplingParams", "vllm is hidden", VERSIONS),
        (f"{_SCHEDULER}/launcher_ms.py", "import acl\n", "acl is hidden", VERSIONS),
        (f"{_SCHEDULER}/scheduler_ms.py", "mint.distributed.init_process_group(",
         "mindspore is hidden", VERSIONS),
        ("mindspeed/op_builder/gmm_builder.py", "import torchair", "torchair is hidden", VERSIONS[:1]),
    )
)  # fmt: skip
