"""`grpoflow weights export RUN`: the model of a run as a Hugging Face directory."""

import shutil
import sys
from pathlib import Path

from pipeline.cli.command import exported, sections_of
from pipeline.config.load import without_locations
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.store.attempt import find_all
from pipeline.store.history import Record
from stages.base.files import read_json
from stages.base.graph import EXPORT_SECTIONS
from stages.base.reader import read
from stages.grpo.checkpoint_files import flaw
from stages.models.config import ModelConfig


def export_run(root: Path, record: Record, out: Path | None = None, *, best: bool) -> int:
    """Print the path of a run's Hugging Face directory, or copy it to `out` (`best`: the best checkpoint's).

    Raises:
        StoreError: the run has no exported model, or its best checkpoint was not retained.
    """
    if best and not (root / record.artifact("grpo")).is_dir():
        return _export_checkpoint(root, record, out)
    if best:
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
        raise ConfigError([Problem("OUT", None, rule, f"grpoflow weights export {record.id} DIR --best")])
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
