"""`grpoflow weights export RUN`: the model of a run as a Hugging Face directory."""

import shutil
from pathlib import Path

from pipeline.cli.command import exported
from pipeline.errors import Exit
from pipeline.store.history import Record


def export_run(root: Path, record: Record, out: Path | None = None) -> int:
    """Print the path of a run's Hugging Face directory, or copy it to `out`.

    Raises:
        StoreError: the run has no exported model.
    """
    exported_directory = exported(root, record)
    if out is None:
        print(exported_directory)
        return Exit.DONE
    from stages.weights.outputs import complete_directory

    with complete_directory(out) as directory:
        for file in exported_directory.iterdir():
            if file.name != "manifest.json":
                shutil.copyfile(file, directory / file.name)
    print(out)
    return Exit.DONE
