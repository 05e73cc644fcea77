"""The grpo stage of engine=toy."""

from pathlib import Path

from stages.base.errors import InputError
from stages.base.reader import read
from stages.engines.outside import Rendered, StepWatcher, import_run, make_start, write_start
from toy_engine.config import ToyEngine

PROGRAM = """
import pathlib, sys
print("step by step", flush=True)  # which read_step does not expect
for step in range(1, int(sys.argv[1]) + 1):
    if step == 5:
        raise SystemExit("toy: the fifth step is too much")
    print(f"step {step} reward {step / 10}", flush=True)
pathlib.Path("weights.bin").write_bytes(b"weights")
"""


def read_step(line):
    """Return the metrics in one line of the program's log, and 0, for it does not report its last step."""
    words = line.split()
    return ({"step": int(words[1]), "reward": float(words[3])}, 0) if words[:1] == ["step"] else None


def render(config, inputs, work):
    """Return the program and how to start it."""
    steps = config["engine"]["steps"]
    engine = read(ToyEngine, config["engine"], "engine")
    start = make_start(engine, (work / "configs" / "program.py", steps), work, {}, (), workers=0)
    return Rendered(start, {"configs/program.py": PROGRAM})


def watch(config, logs, work, report):
    """Follow a run."""
    return StepWatcher(logs / "start.log", work, report, read_step)


def prepare(context):
    """Write the program and how to start it."""
    write_start(context.work, render(context.config, context.inputs, context.work))


def collect(context):
    """Copy the weights into the artifact."""
    weights = Path(context.work / "run" / "weights.bin")
    if not weights.is_file():
        raise InputError(weights, None, "is missing", "read the log")
    (context.output / "weights.bin").write_bytes(weights.read_bytes())
    import_run(context, None, "weights.bin", "1")
