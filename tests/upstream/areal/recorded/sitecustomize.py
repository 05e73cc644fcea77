"""Records the trainer's weights at each update of the inference server.

Python imports this file when it starts, if its directory is on PYTHONPATH. It changes AReaL's FSDP engine as
soon as that is imported: before AReaL writes the weights for the server, the digest of those in the trainer's
memory is appended to the file that the variable RECORD names.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path += [str(HERE.parent / "hooks"), str(HERE)]
from after_import import change_after_import  # noqa: E402

RECORD = "GRPOFLOW_TEST_RECORD"


def change(module):
    """Record the weights at each update through the disk."""
    engine = module.FSDPEngine
    original = engine._update_weights_from_disk

    def update(self, meta):
        import torch.distributed
        from digests import digest_of
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(self.model, options=options)  # gathered from all workers
        if torch.distributed.get_rank() == 0:
            with open(os.environ[RECORD], "a") as file:
                file.write(digest_of(weights) + "\n")
        return original(self, meta)

    engine._update_weights_from_disk = update


if RECORD in os.environ:
    change_after_import({"areal.engine.fsdp_engine": change})
