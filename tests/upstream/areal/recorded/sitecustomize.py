"""Records the trainer's weights at each update of the inference server.

Python imports this file when it starts, if its directory is on PYTHONPATH. It changes AReaL's FSDP engine as
soon as that is imported: before AReaL writes the weights for the server, the digest of those in the trainer's
memory is appended to the file that the variable RECORD names.
"""

import hashlib
import os
import sys
from importlib.machinery import PathFinder

RECORD = "GRPOFLOW_TEST_RECORD"


class RecordedEngine:
    """Finds AReaL's module, and changes it after its import."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "areal.engine.fsdp_engine":
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            change(module.FSDPEngine)

        spec.loader.exec_module = execute_and_change
        return spec


def digest(weights):
    """Return the digest of the same names and values as the server's for CPUs, computed anew.

    The test's model has tied embeddings: its lm_head is no weight of its own.
    """
    total = hashlib.sha256()
    for name in sorted(weights.keys() - {"lm_head.weight"}):
        total.update(name.encode())
        total.update(weights[name].float().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def change(engine):
    """Record the weights of a class of engines at each update through the disk."""
    original = engine._update_weights_from_disk

    def update(self, meta):
        import torch.distributed
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(self.model, options=options)  # gathered from all workers
        if torch.distributed.get_rank() == 0:
            with open(os.environ[RECORD], "a") as file:
                file.write(digest(weights) + "\n")
        return original(self, meta)

    engine._update_weights_from_disk = update


if RECORD in os.environ:
    sys.meta_path.insert(0, RecordedEngine)
