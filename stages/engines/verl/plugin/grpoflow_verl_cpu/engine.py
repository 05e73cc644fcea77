"""verl's FSDP2 engine for the device "cpu"."""
# mypy: ignore-errors

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class CpuEngine(FSDPEngineWithLMHead):
    """verl's engine, whose reference model stays in ordinary memory."""

    def _build_fsdp_module(self, module):
        """Shard the module; a forward-only one would move to pinned memory, which needs an accelerator."""
        forward_only = self.engine_config.forward_only
        self.engine_config.forward_only = False
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config.forward_only = forward_only
