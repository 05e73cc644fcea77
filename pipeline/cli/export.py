"""`grpoflow export`: a checkpoint, or a run's model, as a Hugging Face directory."""

import json
import re
import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from pipeline.cli.command import Commands, exported, sections_of, store_of
from pipeline.cli.weights import add_dtype, shown_bytes
from pipeline.config.load import without_places
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.ui import watch
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
    parser.add_argument("--best", action="store_true", help="its best checkpoint by held-out accuracy")
    add_dtype(parser)


def export(options: Namespace) -> int:
    """A complete mindformers checkpoint, or a run's model, as a Hugging Face directory."""
    names, overrides = _split_overrides(options.names)
    if len(names) < 3 and names:
        options.overrides = [*overrides, *options.overrides]
        return _export_run(options, names[0], Path(names[1]) if len(names) == 2 else None)
    if len(names) != 3 or options.best:
        rule = "takes SRC_DIR HF_REFERENCE OUT_DIR, or RUN [OUT_DIR] [--best]"
        raise ConfigError([Problem("export", " ".join(names), rule, "see grpoflow export --help")])
    from stages.weights.export import export_directory

    source, reference, out = map(Path, names)
    with shown_bytes("export") as tell:
        export_directory(source, reference, out, options.dtype, tell)
    return Exit.DONE


def _export_run(options: Namespace, wanted: str, out: Path | None) -> int:
    """Tell where a run's Hugging Face directory is, or copy it to `out`; with --best, of the best checkpoint.

    Raises:
        StoreError: there is none, or the best one is gone.
    """
    root = store_of(options).root
    record = history.find(root, wanted)
    if options.best and not (root / record.artifact("grpo")).is_dir():
        return _export_checkpoint(root, record, out)
    if options.best:
        print(f"run {record.id}: {_best_kept(root, record)}", file=sys.stderr)
    place = exported(root, record)
    if out is None:
        print(place)
        return Exit.DONE
    from stages.weights.outputs import complete_directory

    with complete_directory(out) as directory:
        for file in place.iterdir():
            if file.name != "manifest.json":
                shutil.copyfile(file, directory / file.name)
    print(out)
    return Exit.DONE


def _best_kept(root: Path, record: Record) -> str:
    result = json.loads((root / record.artifact("grpo") / "result.json").read_text(encoding="utf-8"))
    engine = record.section("engine").get("name")
    if engine != "local":
        raise StoreError(
            f"run {record.id}: engine={engine} compares no checkpoints; export it without --best"
        )
    again = f"grpoflow run {shlex.join(record.overrides)} train.keep_best=true"
    if result.get("best_step") is None:
        raise StoreError(
            f"run {record.id}: no checkpoint was ever compared with another (train.validate_every=0); "
            f"type: {again} train.validate_every=10"
        )
    best = f"step {result['best_step']}, held-out accuracy {result['best_accuracy']:.3f}"
    if result["weights_of_step"] != result["best_step"]:
        raise StoreError(
            f"run {record.id}: the best checkpoint ({best}) was not kept, only that of step "
            f"{result['weights_of_step']}; type: {again}"
        )
    return best


def _export_checkpoint(root: Path, record: Record, out: Path | None) -> int:
    """The best checkpoint so far of a run whose grpo has not ended."""
    from stages.export.stage import make_usable
    from stages.weights.export import export
    from stages.weights.outputs import complete_directory
    from stages.weights.slicing import read_strategy
    from stages.weights.sources import open_ranks

    if out is None:
        rule = "grpo has not ended, so that nothing is exported yet: name a directory for its best checkpoint"
        raise ConfigError([Problem("OUT", None, rule, f"grpoflow export {record.id} DIR --best")])
    attempt = watch.seat(root, record.artifact("grpo"), 0.0)
    states = sorted(attempt.glob("checkpoints/step_*/state.json")) if attempt else []
    best = json.loads(states[-1].read_text(encoding="utf-8"))["best"] if states else {}
    if best.get("step") is None or not states[-1].parent.with_name(f"step_{best['step']:06d}").is_dir():
        raise StoreError(
            f"run {record.id}: no best checkpoint; it is kept with train.keep_best=true and "
            "train.validate_every=N, from the first check on"
        )
    checkpoint = states[-1].parent.with_name(f"step_{best['step']:06d}")
    damage = flaw(checkpoint)
    if damage is not None:
        raise StoreError(f"{checkpoint}: is damaged: {damage}; grpoflow run goes on from before it")
    sections = [name for name in EXPORT_SECTIONS if name not in ("export", "seed")]
    config = sections_of(record, *sections) | {
        "command": without_places(record.overrides, record.section("engine").get("name", ""))
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
    """Names and KEY=VALUE overrides of one list of words; a path with = is told by its slash."""
    overrides = [name for name in names if re.match(r"[+~]*\w[\w.]*=", name)]
    return [name for name in names if name not in overrides], overrides
