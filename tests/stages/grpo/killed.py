"""The grpo stage, killed at a chosen moment: python killed.py SPEC.json [PLACE COUNT].

PLACE is validation (decoded, not yet scored), sync (of a checkpoint's file or directory) or removal (of an
old checkpoint, half done); the process kills itself when it comes there the COUNT-th time. Instead of
accuracy, which a random model never has, checks count something that jumps from step to step.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from stages.context import Context
from stages.grpo import stage, worker


def main(spec, place="", count=0):
    context = Context.load(Path(spec))
    worker.start(context.device_target)
    from stages.grpo import checkpoint, generator

    left = {place: int(count)}

    def here(name):
        left[name] = left.get(name, 0) - 1
        if left[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def jumping(completions, solutions):
        here("validation")
        return [sum(map(len, completions)) % 7 / 7] * len(solutions)

    def synced(path, original=checkpoint._sync):
        here("sync")
        original(path)

    def removed(path, original=shutil.rmtree, **options):
        if Path(path).name.startswith("step_") and Path(path).exists():
            next(Path(path).rglob("model.safetensors")).unlink()
            here("removal")
        original(path, **options)

    generator.accuracy_reward, checkpoint._sync, checkpoint.shutil.rmtree = jumping, synced, removed
    stage.run(context)


if __name__ == "__main__":
    main(*sys.argv[1:])
