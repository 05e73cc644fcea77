"""The grpo stage, killed at a chosen moment: python killed.py SPEC.json [PLACE COUNT].

PLACE is validation (decoded, not yet scored), sync (of a checkpoint's file or directory) or removal (of an
old checkpoint, half done); the process kills itself when it comes there the COUNT-th time. A random model is
never right: after the n-th update checks find ACCURACY[n] instead.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from stages.base.context import Context
from stages.grpo import stage, worker

ACCURACY = (0.1, 0.3, 0.2, 0.2, 0.5, 0.4, 0.4, 0.3, 0.45, 0.2, 0.1)


def main(spec, place="", count=0):
    context = Context.load(Path(spec))
    worker.start(context.device_target)
    from stages.grpo import checkpoint, generator, learner

    left, updates = {place: int(count)}, [0]

    def here(name):
        left[name] = left.get(name, 0) - 1
        if left[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def judged(reward, completions, solutions):
        here("validation")
        return [ACCURACY[updates[0]]] * len(completions)

    def updated(self, batch, parts, original=learner.Learner.update):
        result = original(self, batch, parts)
        updates[0] = self.updates
        return result

    def synced(path, original=checkpoint._sync):
        here("sync")
        original(path)

    def removed(path, original=shutil.rmtree, **options):
        if Path(path).name.endswith("-old") and Path(path).exists():
            next(Path(path).rglob("model.safetensors")).unlink()
            here("removal")
        original(path, **options)

    generator.are_right, learner.Learner.update = judged, updated
    checkpoint._sync, checkpoint.shutil.rmtree = synced, removed
    stage.run(context)


if __name__ == "__main__":
    main(*sys.argv[1:])
