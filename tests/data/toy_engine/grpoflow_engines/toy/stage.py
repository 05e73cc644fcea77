"""The grpo stage of engine=toy."""

from pathlib import Path

from launch.nodes.start import Start
from stages.base.errors import InputError
from stages.engines.outside import Steps, Watcher, bring_home, write_start

PROGRAM = """
import pathlib, sys
for step in range(1, int(sys.argv[1]) + 1):
    if step == 5:
        raise SystemExit("toy: the fifth step is too much")
    print(f"step {step} reward {step / 10}", flush=True)
pathlib.Path("weights.bin").write_bytes(b"weights")
"""


class ToyWatcher(Watcher):
    """Follows the program's log."""

    def __init__(self, logs, work, report):
        super().__init__(logs, "start.log", None, report)
        self._steps = Steps(work)

    def read(self, line):
        """Take in one line."""
        words = line.split()
        if words[:1] == ["step"]:
            self._steps.write({"step": int(words[1]), "reward": float(words[3])})
            self.report(int(words[1]), 0, "")


def fresh(config, inputs, work):
    """Return how to start a run."""
    program = (str(work / "configs" / "program.py"), str(config["engine"]["steps"]))
    return Start(
        program=program,
        workers=0,
        python=config["engine"]["python"],
        env={},
        python_path=(),
        env_scripts=(),
        container=(),
        directory=str(work),
    )


def write_files(config, inputs, work):
    """Write the program."""
    (work / "configs").mkdir(parents=True, exist_ok=True)
    (work / "configs" / "program.py").write_text(PROGRAM, encoding="utf-8")


def watch(config, logs, work, report):
    """Follow a run."""
    return ToyWatcher(logs, work, report)


def prepare(context):
    """Write the program and how to start it."""
    write_files(context.config, context.inputs, context.work)
    write_start(context.work, fresh(context.config, context.inputs, context.work))


def collect(context):
    """Copy the weights into the artifact."""
    weights = Path(context.work / "weights.bin")
    if not weights.is_file():
        raise InputError(weights, None, "is missing", "read the log")
    (context.output / "weights.bin").write_bytes(weights.read_bytes())
    bring_home(context, None, "weights.bin", "1")
