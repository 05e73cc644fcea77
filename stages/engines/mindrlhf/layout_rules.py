"""Rules for layouts of mindrlhf, its one-stage script included; sources as in rules.py."""

from stages.base.rules import Rules, at_least, be, multiple_of
from stages.engines.layout_rules import Laid
from stages.engines.mindformers import layout_rules
from stages.engines.mindformers.layout_rules import sequence_parts

RULES = Rules[Laid]("mindrlhf_layouts")
RULES.include(layout_rules.RULES, lambda laid: laid)
RULES.must(
    "layout.generate.pipeline_stage",
    be(1, "generation must not be pipelined", "set it to 1 and raise model_parallel or data_parallel"),
    "infer_worker.py, reshard_optimizer.py; one stage: its README.md",
)
RULES.must(
    "layout.train.opt_offload",
    be(
        False,
        "the optimizer of this setting needs the norm of the gradients (mindrlhf/utils/adam.py:161), which "
        "the training cell does not pass to it",
        "set it to false; between updates mindrlhf always moves the optimizer to the host",
    ),
    "mindformers wrapper/wrapper.py:281; at 0cd087455 and before mindrlhf/wrapper/wrapper.py, enable_offload",
)
RULES.must(
    "layout.train.micro_batch_num",
    at_least(
        lambda laid: laid.layout["train"].pipeline_stage,
        "pipeline_stage",
        "so many micro-batches fill the pipeline",
        "set it to pipeline_stage, or null",
    ),
    "MindSpore's cell_wrapper.py, PipelineCell",
)
RULES.must(
    "engine.seq_length",
    multiple_of(
        lambda laid, role: sequence_parts(laid.layout[role]),
        why="the parts that a layout cuts a sequence into",
        remedy="leave it null",
    ),
    "ours: MindSpore cuts evenly",
    each=lambda laid: laid.layout,
    value=lambda laid, role: laid.seq_length,
)
