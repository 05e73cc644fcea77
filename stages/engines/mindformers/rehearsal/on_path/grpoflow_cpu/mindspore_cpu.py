"""Changes of MindSpore 2.7.0: replacements of what exists for Ascend only."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

PARALLEL = ("parallel_mode", "full_batch", "enable_parallel_optimizer", "pipeline_stages")
_strategy_files: list[str] = []
"""Files to which the next compiled graph would write its strategy."""


def change(ms: Any) -> None:
    """Make all changes, after mindspore was imported."""
    drop_device_target(ms)
    compute_unsharded(ms)
    write_strategy_files(ms)
    gather_on_cpu(ms)
    count_workers_as_cards(ms)
    name_a_card(ms)
    find_overflow(ms)


def drop_device_target(ms: Any) -> None:
    """Ignore device_target: grpo_config.yaml says Ascend, and build_context passes it on."""
    original = ms.context.set_context

    @functools.wraps(original)
    def set_context(**settings: Any) -> None:
        settings.pop("device_target", None)
        original(**settings)

    ms.context.set_context = ms.set_context = set_context


def compute_unsharded(ms: Any) -> None:
    """Let every worker hold all weights and compute the whole batch: a CPU has no semi_auto_parallel."""
    original = ms.context.set_auto_parallel_context

    @functools.wraps(original)
    def set_auto_parallel_context(**settings: Any) -> None:
        file = (settings.pop("strategy_ckpt_config", None) or {}).get("save_file")
        if file:
            _strategy_files[:] = [file]
        settings = {name: value for name, value in settings.items() if name not in PARALLEL}
        if settings:
            original(**settings)

    ms.context.set_auto_parallel_context = ms.set_auto_parallel_context = set_auto_parallel_context


def write_strategy_files(ms: Any) -> None:
    """Write the strategy file that semi_auto_parallel leaves behind: unsharded, by mindrlhf's own writer."""
    original = ms.nn.Cell.compile

    @functools.wraps(original)
    def compile(self: Any, *arguments: Any, **settings: Any) -> Any:
        compiled = original(self, *arguments, **settings)
        # strategies of graphs called "other" are not read
        if _strategy_files and "/other_" not in _strategy_files[0]:
            from mindrlhf.utils import strategy_utils

            state = strategy_utils.generate_state_dict(self)
            # mindrlhf cannot read four scalars of CausalLMHybrid, which have no shape
            state["model"] = {name: entry for name, entry in state["model"].items() if entry["shape"]}
            strategy_utils.save_strategy_file(state, None, _strategy_files.pop())
        return compiled

    ms.nn.Cell.compile = compile


def gather_on_cpu(ms: Any) -> None:
    """Use mint's barrier and AllGather: Barrier and InnerCommAllGather have no CPU kernels."""
    from mindspore.communication import comm_func, get_group_size
    from mindspore.mint import distributed

    def all_gather_into_tensor(tensor: Any, *arguments: Any, **settings: Any) -> tuple[Any, None]:
        return (tensor if get_group_size() == 1 else ms.ops.AllGather()(tensor)), None

    comm_func.barrier = lambda *arguments, **settings: distributed.barrier()
    comm_func.all_gather_into_tensor = all_gather_into_tensor


def count_workers_as_cards(ms: Any) -> None:
    """Count workers as cards: vLLM's start takes the rank modulo the number of cards of this machine."""
    ms.device_context.ascend.device_count = lambda: int(os.environ.get("MS_WORKER_NUM", "1"))


def name_a_card(ms: Any) -> None:
    """Name a 910B to mindrlhf, which requires one, and no Ascend chip to other callers."""
    from mindspore._c_expression import MSContext

    def get_ascend_soc_version(self: Any) -> str:
        caller = str(sys._getframe(1).f_globals["__name__"])
        return "ascend910b" if caller.startswith("mindrlhf.") else ""

    MSContext.get_ascend_soc_version = get_ascend_soc_version


def find_overflow(ms: Any) -> None:
    """Find overflow in the gradients: MindSpore reads registers of the card."""
    from mindspore.nn.wrap.loss_scale import TrainOneStepWithLossScaleCell

    def get_overflow_status(self: Any, status: Any, grads: Any) -> Any:
        finite = ms.ops.isfinite(grads[0]).all()
        for grad in grads[1:]:
            finite = ms.ops.logical_and(finite, ms.ops.isfinite(grad).all())
        return ms.ops.logical_not(finite)

    TrainOneStepWithLossScaleCell.get_overflow_status = get_overflow_status


class PacedPopen(subprocess.Popen):  # type: ignore[type-arg]
    """Child process that is polled at most twenty times a second."""

    def poll(self) -> int | None:
        """Poll like Popen.poll, after a pause."""
        time.sleep(0.05)
        return super().poll()


def pause_msrun(module: Any) -> None:
    """Slow down msrun's polling of its workers: join_processes would occupy a core."""
    module.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": PacedPopen})


CHANGES = {"mindspore": change, "mindspore.parallel.cluster.process_entity._api": pause_msrun}
