"""The `grpoflow` command: what people type. `luigi --module pipeline RunGRPO` is the same path."""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

EXIT_FAILED, EXIT_INVALID = 1, 2
DTYPES = ("bfloat16", "float16", "float32")  # bf16, fp16, fp32 are understood too

OVERRIDES = """overrides are Hydra's: KEY=VALUE changes a value or chooses from a group, for example
  seed=1                          another seed
  train.beta=0.02 train.steps=80  values of a group
  layout=dp2_mp1_pp1              any layout by its name
  store=/data/store               another artifact store
groups: model layout dataset fetch tokenize reward engine rollout sft train evaluate export launcher
  experiment"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code (0 done, 1 failed, 2 invalid, 10 work pending)."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)  # argparse takes no positionals after an option
    if any(one.startswith("-") or "=" not in one for one in rest):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.overrides += rest
    if options.command in ("report", "watch", "serve_check") and "=" in (options.run or ""):
        options.run, options.overrides = None, [options.run, *options.overrides]  # RUN was left out
    from pipeline.errors import REPORTED, ConfigError

    try:
        action = getattr(importlib.import_module(options.module), options.command)
        if options.module == "pipeline.cli.standalone":  # told to stop, they remove what is half written
            from pipeline.run import signals

            signals.install()
        return int(action(options))
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return EXIT_INVALID
    except REPORTED as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grpoflow",
        description="GRPO post-training of Qwen2.5 on MindSpore as one cached, declarative graph.",
        epilog=f"examples:\n  grpoflow plan\n  grpoflow run seed=1 train.beta=0.02\n\n{OVERRIDES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add = functools.partial(_command, commands)
    run = add("run", "run what is not in the store yet, from fetch to report", "seed=1 train.beta=0.02")
    run.add_argument("--workers", type=int, default=1, help="stages that may run at the same time")
    run.add_argument("--ui", action="store_true", help="show its tasks in the store's `grpoflow ui`")
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="write the engine's files and one start script per node; start nothing",
    )
    plan = add(
        "plan", "show what a run would do and why; starts nothing (exit 10: work pending)", "train.beta=0.02"
    )
    plan.add_argument("--json", action="store_true", help="for programs")
    plan.add_argument(
        "--deep", action="store_true", help="read your own files again, whatever their times say"
    )
    rehearse = add(
        "rehearse",
        "execute an outside engine's own checkouts on this machine's CPU, with the model shrunk",
        "experiment=mindrlhf_7b model.path=HF_DIR dataset.path=DIR engine.mindrlhf_home=CHECKOUT \\\n"
        "      engine.mindformers_home=CHECKOUT engine.python=PYTHON   # HF_DIR needs no weights\n"
        "  grpoflow rehearse … --keep DIR",
    )
    rehearse.add_argument(
        "--keep", type=Path, metavar="DIR", help="rehearse in this empty directory, and leave it"
    )
    rehearse.set_defaults(module="pipeline.rehearsal.command")
    sweep = add(
        "sweep", "run many points as one graph; what they share runs once", "-m train.beta=0.0,0.01 seed=0,1"
    )
    sweep.add_argument("-m", "--multirun", action="store_true", help="as Hydra spells it; implied")
    sweep.add_argument("--plan", action="store_true", help="show the merged graph; starts nothing")
    sweep.add_argument(
        "--cards", type=int, metavar="N", help="cards of this machine (default: largest point)"
    )
    verify = add(
        "verify", "check every artifact of the store (exit 1: damage found)", "--deep store=/data/store"
    )
    verify.add_argument("--deep", action="store_true", help="compare every file with its digest")
    verify.add_argument(
        "--repair", action="store_true", help="move damaged artifacts away, to be built again"
    )
    gc = add("gc", "list what no kept run needs; with --delete, remove it", "--keep 3 --delete")
    gc.add_argument("--keep", type=int, default=5, metavar="N", help="newest runs that are kept (default 5)")
    gc.add_argument("--delete", action="store_true", help="remove it; without this nothing is touched")
    runs = add("runs", "list the runs of the store; pin or name one", "--pin last")
    runs.add_argument("--json", action="store_true", help="for programs")
    runs.add_argument("--pin", metavar="RUN", help="keep its artifacts whatever gc is told")
    runs.add_argument("--unpin", metavar="RUN", help="give that up")
    runs.add_argument("--name", metavar="RUN=NAME", help="give a run a name; named runs are kept too")
    show = add("show", "show one run: settings, state, result, artifacts", "last")
    show.add_argument("run", metavar="RUN", help="id, beginning of an id, name, or last")
    diff = add("diff", "show how two runs differ in configuration and result", "20261121-0801 last")
    diff.add_argument("run", metavar="RUN_A")
    diff.add_argument("other", metavar="RUN_B")
    _add_doctor(add)
    _add_diagnose(add)
    ui = add("ui", "serve Luigi's task pages, the runs and their live reports on loopback", "--port 0 --open")
    ui.add_argument("--port", type=int, default=8082, metavar="N", help="0: any that is free")
    ui.add_argument(
        "--socket",
        metavar="PATH",
        help="a Unix socket instead of a port: the kernel opens it to you alone",
    )
    ui.add_argument("--cards", type=int, metavar="N", help="cards of this machine (default: found)")
    ui.add_argument("--open", action="store_true", help="open it in the browser")
    ui.set_defaults(module="pipeline.ui.server")
    _add_layouts(add)
    report = add("report", "print the path of a run's report; --open shows it in the browser", "last --open")
    report.add_argument("--open", action="store_true", help="open it in the browser")
    watch = add("watch", "show a run while it goes on, until it ends", "last --once")
    watch.add_argument("--once", action="store_true", help="show it as it is now and end")
    watch.set_defaults(module="pipeline.ui.watch")
    for command, meant in ((report, "last"), (watch, "the newest living one")):
        told = f"id, beginning of an id, name, or last (default: {meant})"
        command.add_argument("run", metavar="RUN", nargs="?", help=told)
    serve = add(
        "serve-check",
        "load an exported model, let it answer three prompts (exit 1: it does not, or not as evaluate saw)",
        "DIR --prompt 'What is 2 + 3?'",
    )
    serve.add_argument("run", metavar="RUN|DIR", nargs="?", help="a run, or a Hugging Face directory")
    serve.add_argument("--prompt", action="append", metavar="TEXT", help="ask this; may be repeated")
    serve.add_argument("--program", choices=("transformers", "local"), help="default: transformers if there")
    serve.set_defaults(module="pipeline.cli.serving", command="serve_check")
    _add_tools(add)
    for command in commands.choices.values():
        command.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides")
    return parser


def _add_doctor(add: Callable[..., argparse.ArgumentParser]) -> None:
    doctor = add(
        "doctor",
        "check what the engines need of this machine, with a verdict each (exit 1: the chosen one can't run)",
        "engine=mindrlhf engine.mindrlhf_home=DIR engine.python=PYTHON\n  grpoflow doctor --online --json",
    )
    doctor.add_argument("--json", action="store_true", help="for programs")
    doctor.add_argument("--online", action="store_true", help="ask the model hub whether it answers")
    doctor.add_argument(
        "--checkout",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="look at a checkout of mindrlhf, one_stage, mindformers or mindspeed_rl too",
    )
    doctor.add_argument(
        "--fix-script",
        action="store_true",
        help="print a script that installs the chosen engine with versions that fit; nothing is run",
    )
    doctor.set_defaults(module="pipeline.cli.doctor")


def _add_diagnose(add: Callable[..., argparse.ArgumentParser]) -> None:
    diagnose = add(
        "diagnose",
        "tell from a failed run's logs what happened and what to do (exit 1: nothing known)",
        "store/.logs/grpo-0123456789abcdef\n  grpoflow diagnose output/msrun_log --json",
    )
    diagnose.add_argument(
        "logs", type=Path, metavar="LOG_DIR", help="msrun's or grpoflow's; or one log; anybody's"
    )
    diagnose.add_argument("--json", action="store_true", help="for programs")
    diagnose.set_defaults(module="pipeline.cli.diagnose")


def _add_layouts(add: Callable[..., argparse.ArgumentParser]) -> None:
    layouts = add(
        "layouts",
        "list every valid layout with its memory, best first (cards=8, engine=mindrlhf unless told)",
        "model=qwen2_5_7b cards=8 engine.device_memory_gib=64\n"
        "  grpoflow layouts model=qwen2_5_72b cards=64 layout.train.recompute=true --json\n"
        "  grpoflow layouts model=qwen2_5_7b layout=dp1_mp4_pp2 --picture layout.svg",
    )
    layouts.add_argument(
        "--json", action="store_true", help="for programs; names every refused layout's rules"
    )
    layouts.add_argument(
        "--picture", type=Path, metavar="FILE.svg", help="draw the first: which card holds what"
    )
    layouts.set_defaults(module="pipeline.plan.layouts")


def _add_tools(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Single stages on plain paths."""
    strategy = add(
        "strategy", "write MindSpore strategy files from the layout alone", "--out DIR --role train"
    )
    strategy.add_argument("--out", type=Path, required=True, metavar="DIR")
    strategy.add_argument("--role", choices=("train", "generate", "reference"), default="train")
    strategy.add_argument("--names", choices=("mindformers", "mindrlhf"), default="mindformers")
    convert = add("convert", "rename a Hugging Face checkpoint to mindformers' names", "SRC_HF_DIR OUT_DIR")
    _paths(convert, "source", "out")
    convert.add_argument("--qkv-concat", action="store_true", help="fuse q, k, v and gate, up")
    split = add(
        "split", "cut a complete checkpoint into rank directories", "SRC_DIR STRATEGY OUT_DIR --ranks 0-7"
    )
    _paths(split, "source", "strategy", "out")
    merge = add("merge", "put rank directories together", "SRC_RANK_DIR STRATEGY OUT_DIR")
    _paths(merge, "source", "strategy", "out")
    reshard = add(
        "reshard", "turn rank directories of one layout into another's", "SRC_RANK_DIR SRC DST OUT_DIR"
    )
    _paths(reshard, "source", "source_strategy", "target_strategy", "out")
    for command in (split, reshard):
        command.add_argument("--ranks", metavar="0-7", help="only these ranks: one node's share")
    export = add(
        "export",
        "write a mindformers checkpoint, or a run's model, as a Hugging Face directory",
        "SRC HF_REFERENCE OUT_DIR\n  grpoflow export RUN OUT_DIR --best",
    )
    forms = "SRC HF_REFERENCE OUT_DIR, or RUN [OUT_DIR]: a run's id, name, or last"
    export.add_argument("names", nargs="+", metavar="NAME", help=forms)
    export.add_argument("--best", action="store_true", help="its best checkpoint by held-out accuracy")
    for command in (convert, split, reshard):
        command.add_argument("--format", choices=("safetensors", "ckpt"), default="safetensors")
    for command in (convert, split, merge, export):
        command.add_argument("--dtype", choices=DTYPES, type=_dtype, help="cast; default: keep")
    tokenize = add(
        "tokenize",
        "write a file of questions, instructions, conversations or text as MindRecord",
        "--input F.jsonl --tokenizer DIR --out DIR dataset=gsm8k\n"
        "  grpoflow tokenize --input F.parquet --tokenizer DIR --out DIR tokenize=conversations",
    )
    tokenize.add_argument(
        "--input", type=Path, required=True, metavar="FILE", help=".jsonl, .json, .parquet; or text"
    )
    tokenize.add_argument("--tokenizer", type=Path, required=True, metavar="DIR")
    tokenize.add_argument("--out", type=Path, required=True, metavar="DIR")
    tokenize.add_argument("--sft", action="store_true", help="supervised examples of the questions too")
    probe = add(
        "probe", "can the configured reward be earned at all? (exit 1: no)", "dataset=gsm8k dataset.path=DIR"
    )
    for command in (strategy, convert, split, merge, reshard, export, tokenize, probe):
        command.set_defaults(module="pipeline.cli.standalone")


def _dtype(text: str) -> str:
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(text, text)


def _paths(command: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        command.add_argument(name, type=Path, metavar=name.upper())


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help: str, example: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=f"examples:\n  grpoflow {name}\n  grpoflow {name} {example}\n\n{OVERRIDES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--config-dir", type=Path, help="directory with config groups of your own")
    command.set_defaults(command=name, module="pipeline.cli.commands")
    return command


if __name__ == "__main__":
    sys.exit(main())
