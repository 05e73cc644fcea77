"""Steps in the logs of mindformers.

Source: mindformers 051d65f and 1.6.0, core/callback/callback.py (MFLossMonitor.print_output_info) and
trainer/base_trainer.py (training_process).
"""

import re

from stages.engines.outside import NUMBER, Row

FINISHED = "Training Over!"
_STEP = re.compile(
    r"\{ Epoch:\[\s*(\d+)/\s*(\d+)\], step:\[\s*(\d+)/\s*(\d+)\], loss:\s*\[?\s*"
    rf"({NUMBER})(?:/\s*{NUMBER}\])?, per_step_time: (\d+)ms"
)
_NAMED = re.compile(r"(lr|overflow cond|global_norm): ([^,]+)")
_FIRST = re.compile(NUMBER)


def read_step(line: str, tokens: int) -> tuple[Row, int] | None:
    """Return the metrics in a line that reports a step of `tokens` tokens, and the number of all steps."""
    match = _STEP.search(line)
    if match is None:
        return None
    epoch, epochs, step, steps = (int(match[group]) for group in range(1, 5))
    row: Row = {"step": (epoch - 1) * steps + step, "loss": float(match[5])}
    seconds = int(match[6]) / 1000
    if seconds > 0:
        row.update(step_s=seconds, tokens_per_s=tokens / seconds)
    values = dict(_NAMED.findall(line))
    for name, key in (("lr", "lr"), ("grad_norm", "global_norm")):
        if key in values and (number := _FIRST.search(values[key])):
            row[name] = float(number[0])
    if "overflow cond" in values:
        row["overflow"] = float(values["overflow cond"].strip("[] ") in ("True", "1"))
    return row, epochs * steps
