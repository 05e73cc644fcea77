"""Stage export of engine=areal: the Hugging Face directory of the last step with the fetched model's names.

AReaL writes weights in the type of actor.optimizer_dtype. The artifact has the fetched model's files, names
and types, or export.dtype.
Source: AReaL 1.0.4, engine/fsdp_engine.py, _save_model_to_hf.
"""

from stages.base.context import Context
from stages.engines.areal.train import MODEL
from stages.engines.model_directory import import_converted
from stages.export.stage import make_usable


def run(context: Context) -> None:
    """Write the directory.

    Raises:
        InputError: a tensor is missing or left over, has the wrong shape, or contains NaN or infinity.
    """
    import_converted(context, context.inputs["grpo"] / MODEL, default_dtype=None)
    make_usable(context.config, context.inputs, context.output)
