"""The places of upstream that on_path/sitecustomize.py stands on; line numbers of 667a547 are c21465a's."""

from stages.engines.mindspeed_rl.config import VERSIONS
from stages.engines.rehearsal import SourceLocation

_ROLLOUT = "mindspeed_rl/models/rollout/vllm_engine.py"
_SCHEDULER = "mindspeed_rl/workers/scheduler"
LOCATIONS = tuple(
    SourceLocation(file, "", words, why, dict(zip(VERSIONS, lines, strict=True)))
    for file, words, why, lines in (  # lines in VERSIONS' order; None: that version has none
        ("cli/train_grpo.py", "if not torch.cuda.is_available():", "cuda_means_this_device", (528, 419)),
        ("megatron/training/checkpointing.py", "'cuda_rng_state': torch.cuda.get_rng_state(),",
         "cuda_means_this_device", (275, 261)),
        (_ROLLOUT, "from torch_npu.contrib import transfer_to_npu", "cuda_means_this_device", (14, 13)),
        (_ROLLOUT, "from vllm import LLM, SamplingParams", "vllm is hidden", (18, 30)),
        (f"{_SCHEDULER}/launcher_ms.py", "import acl\n", "acl is hidden", (25, 25)),
        (f"{_SCHEDULER}/scheduler_ms.py", "mint.distributed.init_process_group(",
         "mindspore is hidden", (151, 151)),
        ("mindspeed/op_builder/gmm_builder.py", "import torchair", "torchair is hidden", (4, None)),
    )
)  # fmt: skip
