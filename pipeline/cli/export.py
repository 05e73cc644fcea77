"""`grpoflow export`: write a checkpoint or a run's model as a Hugging Face directory."""

import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from pipeline.cli.command import Commands, exported, sections_of, store_of
from pipeline.cli.weights import add_dtype, byte_progress, warn_unused_index
from pipeline.config.load import without_locations
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.store import history
from pipeline.store.attempt import find_all
from pipeline.store.history import Record
from stages.base.files import read_json
from stages.base.graph import EXPORT_SECTIONS
from stages.base.reader import read
from stages.grpo.checkpoint_files import flaw
from stages.models.config import ModelConfig


def register(commands: Commands) -> None:
    """Add `export`."""
    parser = commands.add(
        "export",
        export,
        "write a mindformers checkpoint, or a run's model, as a Hugging Face directory",
        "SRC HF_REFERENCE OUT_DIR",
        "RUN OUT_DIR --best",
        tidies=True,
    )
    forms = "SRC HF_REFERENCE OUT_DIR, or RUN [OUT_DIR]: a run's id, name, or last"
    parser.add_argument("names", nargs="+", metavar="NAME", help=forms)
    parser.add_argument("--best", action="store_true", help="the run's best checkpoint by held-out accuracy")
    add_dtype(parser)


def export(options: Namespace) -> int:
    """Write a complete mindformers checkpoint, or a run's model, as a Hugging Face directory."""
    names, overrides = _split_overrides(options.names)
    if len(names) < 3 and names:
        options.overrides = [*overrides, *options.overrides]
        return _export_run(options, names[0], Path(names[1]) if len(names) == 2 else None)
    if len(names) != 3 or options.best:
        rule = "takes SRC_DIR HF_REFERENCE OUT_DIR, or RUN [OUT_DIR] [--best]"
        raise ConfigError([Problem("export", " ".join(names), rule, "see grpoflow export --help")])
    from stages.weights.export import export_directory

    source, reference, out = map(Path, names)
    warn_unused_index(reference)
    with byte_progress("export") as on_progress:
        export_directory(source, reference, out, options.dtype, on_progress)
    return Exit.DONE


def _export_run(options: Namespace, run: str, out: Path | None) -> int:
    """Print the path of a run's Hugging Face directory, or copy it to `out` (with --best: the best).

    Raises:
        StoreError: the run has no exported model, or its best checkpoint was not retained.
    """
    root = store_of(options).root
    record = history.find(root, run)
    if options.best and not (root / record.artifact("grpo")).is_dir():
        return _export_checkpoint(root, record, out)
    if options.best:
        print(f"run {record.id}: {_describe_best(root, record)}", file=sys.stderr)
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


def _describe_best(root: Path, record: Record) -> str:
    """Return step and accuracy of the best checkpoint; raise StoreError if grpo's result is another one."""
    result = read_json(root / record.artifact("grpo") / "result.json")
    best = result.get("best_step")
    if best is None or best != result["weights_of_step"]:
        last = f"grpo ended with step {result.get('weights_of_step', result['steps'])}"
        remedy = "engine=local keeps the best with train.keep_best=true; export this one without --best"
        raise StoreError(
            f"run {record.id}: {last}, the best is {'unknown' if best is None else best}; {remedy}"
        )
    return f"step {best}, held-out accuracy {result['best_accuracy']:.3f}"


def _export_checkpoint(root: Path, record: Record, out: Path | None) -> int:
    """Export the best checkpoint so far of a run whose grpo stage has not finished."""
    from stages.export.stage import make_usable
    from stages.weights.export import export
    from stages.weights.outputs import complete_directory
    from stages.weights.sources import open_ranks
    from stages.weights.strategy.files import read_strategy

    if out is None:
        rule = "is required: grpo has not ended, so the store has no exported model yet"
        raise ConfigError([Problem("OUT", None, rule, f"grpoflow export {record.id} DIR --best")])
    attempts = find_all(root, record.artifact("grpo"))
    states = sorted(attempts[0].glob("checkpoints/step_*/state.json")) if attempts else []
    best = read_json(states[-1])["best"] if states else {}
    if best.get("step") is None or not states[-1].parent.with_name(f"step_{best['step']:06d}").is_dir():
        raise StoreError(
            f"run {record.id}: no best checkpoint; set train.keep_best=true and "
            "train.validate_every=N; it exists from the first validation on"
        )
    checkpoint = states[-1].parent.with_name(f"step_{best['step']:06d}")
    damage = flaw(checkpoint)
    if damage is not None:
        raise StoreError(f"{checkpoint}: is damaged: {damage}; `grpoflow run` resumes from an earlier one")
    sections = [name for name in EXPORT_SECTIONS if name not in ("export", "seed")]
    config = sections_of(record, *sections) | {
        "command": without_locations(record.overrides, record.section("engine").get("name", ""))
    }
    inputs = {name: root / record.artifact(name) for name in ("fetch", "tokenize")}
    model = read(ModelConfig, config["model"], "model")
    tensors = open_ranks(checkpoint / "weights", read_strategy(checkpoint / "train_strategy"))
    with complete_directory(out) as directory:
        export(tensors, inputs["fetch"], directory, model, None)
        make_usable(config, inputs, directory)
    accuracy = f"step {best['step']}, held-out accuracy {best['accuracy']:.3f}"
    print(f"run {record.id}: {accuracy}, the best so far", file=sys.stderr)
    print(out)
    return Exit.DONE


def _split_overrides(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate names from KEY=VALUE overrides; a path that contains `=` has a slash before it."""
    overrides = [name for name in names if re.match(r"[+~]*\w[\w.]*=", name)]
    return [name for name in names if name not in overrides], overrides
