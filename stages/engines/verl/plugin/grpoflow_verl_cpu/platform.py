"""The platform "grpoflow_cpu": device "cpu" and collectives over gloo.

Everything that concerns Ray is PlatformNPU's: the resource is named NPU as on Ascend.
"""
# mypy: ignore-errors
# ruff: noqa: D102  the methods are described in verl/plugin/platform/platform_base.py

import os
import resource
import types

import psutil
import torch
from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_npu import PlatformNPU


def _ignore(*args, **kwargs):
    """Do nothing: the CPU has no such function."""


def _memory(*args):
    return psutil.Process().memory_info().rss


def _largest_memory(*args):
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _machine_memory(*args):
    memory = psutil.virtual_memory()
    return memory.available, memory.total


DEVICE = types.SimpleNamespace(
    **{name: getattr(torch.cpu, name) for name in torch.cpu.__all__},
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
    memory_allocated=_memory,
    memory_reserved=_memory,
    max_memory_allocated=_largest_memory,
    max_memory_reserved=_largest_memory,
    mem_get_info=_machine_memory,
    get_device_name=lambda *args: "CPU",
    empty_cache=_ignore,
)
"""Functions of torch.npu that verl calls (verl/utils/device.py get_torch_device)."""


@PlatformRegistry.register(platform="grpoflow_cpu")
class CpuPlatform(PlatformNPU):
    """verl's platform for Ascend with a CPU as its device."""

    device_name = vendor_name = "cpu"
    device_module = DEVICE
    set_device = synchronize = set_allocator_settings = empty_cache = _ignore

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"  # torch refuses "cpu:0" in some functions

    def device_count(self):
        return 1

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        """Return "gloo", after starting the process group of a training worker.

        verl/utils/distributed.py would start it as "cpu:gloo,cpu:gloo", and torch refuses the second "cpu".
        But verl requests the name first, and uses a process group that exists.
        """
        if os.environ.get("WG_BACKEND") == "ray" and not torch.distributed.is_initialized():
            rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
        return "gloo"

    def is_ipc_supported(self):
        return False
