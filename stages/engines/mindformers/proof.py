"""That a run which leaves mindformers' checkpoints has finished."""

from collections.abc import Mapping
from pathlib import Path

from stages.base.errors import InputError
from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.checkpoints import Moment
from stages.engines.outside import contains_line, is_new


def prove(
    logs: Path, said: str, root: Path, part: str, workers: int, earlier: Mapping[str, list[int]]
) -> Moment:
    """Return the final checkpoint of a run that is known to have finished.

    Args:
        logs: of this attempt.
        said: what worker 0 logs last.
        root: the directory that holds the parts.
        part: the part that holds the weights.
        workers: ranks.
        earlier: see outside.write_start.

    Raises:
        InputError: the last word is not there, or no complete checkpoint is newer than the start.
    """
    log = logs / "worker_0.log"
    remedy = "read the log; type the same command again to go on from the last checkpoint"
    if not contains_line(log, said):
        rule = f'ended with exit code 0, but "{said}", the only proof of a finished run, is not in its log'
        raise InputError(log, None, rule, remedy)
    steps = checkpoints.moments(root, part, workers)
    if not steps or not is_new(checkpoints.file(root, part, 0, steps[-1]), earlier):
        raise InputError(root, str(steps[-1]) if steps else None, "no new checkpoint of all ranks", remedy)
    return steps[-1]
