"""`grpoflow tokenize` and `probe`: write MindRecord files; check that the reward can be earned."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pipeline.cli.command import Commands, add_json
from pipeline.config.load import unchecked
from pipeline.errors import ConfigError, Exit, Problem, store_errors
from pipeline.plan.checks import tag_warnings
from pipeline.terminal import Column, Table, as_json, console, say
from stages import engines
from stages.report.text import figure
from stages.rewards import probe as rewards


def register(commands: Commands) -> None:
    """Add the dataset tools."""
    parser = commands.add(
        "tokenize",
        tokenize,
        "write a file of questions, instructions or conversations as MindRecord",
        "--input F.jsonl --tokenizer DIR --out DIR dataset=gsm8k",
        "--input F.parquet --tokenizer DIR --out DIR tokenize=conversations",
    )
    parser.add_argument(
        "--input", type=Path, required=True, metavar="FILE", help=".jsonl, .json (also .gz) or .parquet"
    )
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sft", action="store_true", help="also write supervised examples of the questions")

    help_text = "check that the configured reward can be earned on this dataset (exit 1: it cannot)"
    parser = commands.add("probe", probe, help_text, "dataset=gsm8k dataset.path=DIR")
    add_json(parser, "all scores, and an example of each form of answer")


def tokenize(options: Namespace) -> int:
    """Write one file of questions, instructions or conversations as MindRecord."""
    from stages.tokenize.stage import make_encoder, tokenize_path  # not needed by --help

    run = unchecked(options.overrides, options.config_dir)
    dataset, config = run.dataset, run.tokenize
    if options.sft and config.kind != "grpo":
        rule = f"requires tokenize.kind=grpo, not {config.kind}"
        raise ConfigError([Problem("--sft", None, rule, "omit it")])
    if not options.tokenizer.is_dir():
        remedy = "name the directory that has tokenizer.json, or vocab.json and merges.txt"
        raise ConfigError([Problem("--tokenizer", str(options.tokenizer), "must be a directory", remedy)])
    # Token ids of the section apply. Its shape does not: the default model is not the tokenizer's.
    model = replace(run.model, vocab_size=sys.maxsize)
    encoder = make_encoder(options.tokenizer, model, dataset, config)
    with store_errors(options.out, "choose another directory"):
        cards = tokenize_path(encoder, options.input, options.out, sft=options.sft)
    print(as_json(cards, default=asdict))
    return Exit.DONE


def probe(options: Namespace) -> int:
    """Check that the configured reward can be earned with this prompt and dataset."""
    if not os.environ.get(
        "PYTHONSAFEPATH"
    ):  # a stage imports from the working directory, this script does not
        sys.path.insert(0, os.getcwd())
    run = unchecked(options.overrides, options.config_dir)
    dataset, config, reward, model = run.dataset, run.tokenize, run.reward, run.model
    engine = engines.get(run.engine.name)
    end = engine.leftover(vars(run.engine), model)
    outcome = rewards.probe(dataset, config, reward, rewards.sample_rows(dataset, config, 0), end)
    found = outcome.to_json()
    found["problems"] += tag_warnings(model, config, reward, engine)
    if options.json:
        print(as_json(found))
    else:
        _show(outcome, found["problems"])
    return Exit.DONE if outcome.earnable else Exit.FAILED


def _show(outcome: rewards.Probe, problems: Sequence[str]) -> None:
    """Print what each form of answer earns, the verdict and the problems."""
    names = outcome.functions
    columns = (Column(name, "number") for name in names)
    table = Table(["answer", *columns, ""], f"mean rewards of the answers to {outcome.rows} training rows")
    forms = dict.fromkeys(form for function in names.values() for form in function.means)
    for form in forms:
        scores = (figure(function.means.get(form)) for function in names.values())
        kind = "wrong" if form in rewards.BROKEN else "right"
        asked = any(form in function.earned_by for function in names.values())
        table.add(form, *scores, f"{kind}, shown or asked for" if asked else kind)
    table.add("weight", *(figure(function.weight) for function in names.values()))
    console().print(table)
    earning = {
        form: None for function in names.values() if function.weight > 0 for form in function.earned_by
    }
    if outcome.earnable:
        say(f"the reward can be earned: {', '.join(earning)}")
    else:
        say("the reward CANNOT be earned: no form that the data shows or the prompt asks for scores")
    if problems:
        say(f"problems: {len(problems)}")
    for problem in problems:
        say(f"  {problem}")
