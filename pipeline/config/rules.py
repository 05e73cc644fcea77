"""Rules between sections that hold for all engines; `check` also applies those of sections and engines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from launch.config import LOOPBACK
from pipeline.config import inference
from pipeline.config.store_path import store_problems
from pipeline.errors import Problem
from stages import engines
from stages.base.checks import at_most, divides, multiple_of
from stages.base.layout import ROLES
from stages.catalog import STAGES
from stages.fetch.config import dataset_problems, model_problems
from stages.fetch.sources import fetch_problems
from stages.grpo.rules import evaluate_problems, training_problems
from stages.models import layouts
from stages.models.config import id_problems, shape_problems
from stages.models.families import family_of, family_problems
from stages.rewards.config import problems as reward_problems
from stages.tokenize.config import problems as tokenize_problems

if TYPE_CHECKING:
    from launch.config import LauncherConfig
    from pipeline.config.sections import Config

SINGLE = "leave sweep.stop out"
DASHBOARD = re.compile(r"https?://[^/?#@\s]+(/[^?#\s]*)?")
"""A dashboard may be behind a path of a proxy."""
SET_BY_LAUNCHER = re.compile(
    r"--(?:job-name|nodes|ntasks(?:-per-\w+)?|array|output)(?![\w-]).*|-[JNnao](?!-).*"
)


def check(config: Config) -> list[Problem]:
    """Return the problems of all rules that `config` breaks."""
    engine = engines.get(config.engine.name)
    family = list(family_problems(config.model, engine.name, engine.trains, engines.training))
    engine_problems = [
        problem
        for engine in engines.chosen(config)
        if not family or engine.name == engines.SUPERVISED
        for problem in engine.all_problems(config)
    ]
    return [*family, *problems(config), *engine_problems, *_sections(config)]


def problems(config: Config) -> Iterator[Problem]:
    """Yield the problems between sections, whatever the engine."""
    yield from _places(config)
    yield from _heads(config)
    yield from _layouts(config)
    yield from _lengths(config)
    yield from _examples(config)
    yield from _turns(config)
    yield from _early_stop(config)
    if config.sft.enabled and engines.get(config.engine.name).programs:
        rule = f"engine={config.engine.name} starts from the fetched weights"
        remedy = "set sft.enabled=false, and engine.sft=mindformers where it should be trained first"
        yield Problem("sft.enabled", True, rule, remedy, "ours: its sft stage is skipped")
    if config.engine.name == "local" and config.engine.upstream:
        rule = "has no effect: engine=local renders no file"
        remedy = "leave it out; only +engine.upstream.train.KEY with engine.sft=mindformers has an effect"
        source = "ours: engine=local is no outside program"
        yield Problem("engine.upstream", dict(config.engine.upstream), rule, remedy, source)


def _turns(config: Config) -> Iterator[Problem]:
    """Yield problems of completions with several turns: of the engine, and of prompts without a template."""
    rollout, name = config.rollout, config.engine.name
    if rollout.agent is None:
        return
    if not engines.get(name).has_agents:
        rule = f"must be null with engine={name}, whose completions are one turn"
        remedy = "leave it out, or choose engine=verl"
        yield Problem("rollout.agent", rollout.agent, rule, remedy, "ours: stages/engines")
    elif rollout.tools and not config.tokenize.chat_template:
        rule = "must be true with rollout.tools: a chat template describes the functions to the model"
        remedy = "set it to true, with a model whose template knows tools"
        source = "verl/utils/tokenizer/continuous_token.py"
        yield Problem("tokenize.chat_template", False, rule, remedy, source)


def _examples(config: Config) -> Iterator[Problem]:
    """Yield problems of examples for supervised training alone, in a run with questions and rewards."""
    kind, solution, source = config.tokenize.kind, config.dataset.solution, "ours: stages/grpo/data.py"
    supervised = config.engine.name == "supervised"
    if kind != "grpo" and not supervised:
        rule = "must be grpo in a run with questions and rewards"
        remedy = "use engine=supervised, or make files for mindformers with `grpoflow tokenize`"
        yield Problem("tokenize.kind", kind, rule, remedy, source)
    if solution == "none" and (kind == "grpo" or not supervised):
        rule = "has no ground truth, with which rewards and held-out accuracy compare"
        remedy = "choose another dataset; for supervised training alone engine=supervised tokenize=alpaca"
        yield Problem("dataset.solution", solution, rule, remedy, source)


def _early_stop(config: Config) -> Iterator[Problem]:
    """Yield problems of a sweep whose trainings may be stopped early."""
    train, stop, source = config.train, config.sweep.stop, "ours: pipeline/run/halving.py"
    if stop is None:
        return
    if config.engine.name == "supervised":
        yield Problem("sweep.stop", stop, "needs stage grpo, which engine=supervised lacks", SINGLE, source)
    elif not train.validate_every:
        rule = f"compares checks, and train.validate_every is 0 (engine={config.engine.name})"
        remedy = f"set train.validate_every={max(1, train.steps // 9)}, or {SINGLE}"
        yield Problem("sweep.stop", stop, rule, remedy, source)
    elif train.validate_every >= train.steps:
        rule = f"needs two checks or more: there is one, after step {train.steps}, with which training ends"
        yield Problem("sweep.stop", stop, rule, f"lower train.validate_every, or {SINGLE}", source)
    elif config.sweep.first_check * train.validate_every >= train.steps:
        step = config.sweep.first_check * train.validate_every
        rule = f"is the check after step {step}, and training ends after step {train.steps}"
        remedy = "lower it, or train.validate_every"
        yield Problem("sweep.first_check", config.sweep.first_check, rule, remedy, source)


def _sections(config: Config) -> Iterator[Problem]:
    """Yield the problems of single sections."""
    yield from training_problems(config)
    yield from reward_problems(config.reward)
    yield from evaluate_problems(config.evaluate)
    yield from inference.problems(config)
    yield from tokenize_problems(config.tokenize)
    yield from model_problems(config.model)
    yield from id_problems(config.model)
    yield from shape_problems(config.model)
    yield from dataset_problems(config.dataset)
    yield from fetch_problems(config.fetch)


def _places(config: Config) -> Iterator[Problem]:
    """Yield problems of store, remote and launcher."""
    store, launcher = config.store, config.launcher
    broken = list(store_problems(store))
    yield from broken or _remote_store(store, config.remote.url or "")
    for index, name in enumerate(config.remote.stages):
        if name not in STAGES:
            remedy = f"known: {', '.join(STAGES)}"
            yield Problem(
                f"remote.stages[{index}]", name, "is no stage", remedy, "ours: pipeline/store/remote"
            )
    slurm = "ours: launch/nodes/slurm.py"
    lists = {"sbatch": launcher.sbatch, **{f"slurm.{name}": each for name, each in launcher.slurm.items()}}
    for key, options in lists.items():
        for index, option in enumerate(options):
            if SET_BY_LAUNCHER.fullmatch(option):  # follows from the layout, or finds the job again
                remedy = "leave it out; layout and launcher.cards_per_node give the nodes"
                yield Problem(f"launcher.{key}[{index}]", option, "is set by the launcher", remedy, slurm)
    yield from _stage_jobs(launcher)
    if not launcher.ssh:
        source = "ours: launch/nodes/fan_out.py"
        yield Problem("launcher.ssh", [], "must be the ssh command", "leave it out", source)
    if launcher.name == "slurm" and launcher.master_addr not in LOOPBACK:
        rule = "has no effect with launcher=slurm: Slurm names the address of the first node"
        yield Problem("launcher.master_addr", launcher.master_addr, rule, "leave it out", slurm)


def _stage_jobs(launcher: LauncherConfig) -> Iterator[Problem]:
    """Yield problems of stages that run as jobs of Slurm or Ray."""
    source, known = "ours: pipeline/run/stage_job.py", f"known: {', '.join(STAGES)}"
    names = () if launcher.stages == "all" else launcher.stages
    if isinstance(names, str):
        rule = "must be all, or a list of stages"
        yield Problem("launcher.stages", names, rule, f"for example launcher.stages=[{names}]", source)
        names = ()
    for index, name in enumerate(names):
        if name not in STAGES:
            yield Problem(f"launcher.stages[{index}]", name, "is no stage", known, source)
    for queue, each in (("slurm", launcher.slurm), ("ray", launcher.ray)):
        for name, value in each.items():
            path, shown = f"launcher.{queue}.{name}", value if value is None else _plain(value)
            if name not in STAGES:
                yield Problem(path, shown, "is no stage", known, source)
            elif value and not (launcher.name == queue and launcher.runs_as_job(name)):
                rule = "has no effect: the stage does not run in a job of its own"
                if launcher.has_queue and launcher.runs_as_job(name):
                    rule = f"has no effect with launcher={launcher.name}"
                remedy = f"add launcher={queue} launcher.stages=[{name}], or leave it out"
                yield Problem(path, shown, rule, remedy, source)
    if launcher.stages and not launcher.has_queue:
        stages = launcher.stages if isinstance(launcher.stages, str) else list(launcher.stages)
        rule = f"needs launcher=slurm or launcher=ray, not {launcher.name}"
        yield Problem("launcher.stages", stages, rule, "add launcher=slurm, or leave it out", source)
    yield from _ray(launcher)


def _plain(value: Sequence[str] | Mapping[str, float]) -> list[str] | dict[str, float]:
    return dict(value) if isinstance(value, Mapping) else list(value)


def _ray(launcher: LauncherConfig) -> Iterator[Problem]:
    """Yield problems of the Ray cluster on which stages run as jobs, and of the resources of these jobs."""
    address, source, path = launcher.ray_address, "ours: launch/nodes/ray_job.py", "launcher.ray_address"
    if launcher.name != "ray":
        if address is not None:
            rule = f"has no effect with launcher={launcher.name}"
            yield Problem(path, address, rule, "add launcher=ray, or leave it out", source)
        return
    example = "for example http://HOST:8265"
    if address is None:
        rule = "must be the address of the cluster's dashboard with launcher=ray"
        yield Problem(path, None, rule, f"give it, {example}", source)
    elif not DASHBOARD.fullmatch(address):
        rule = "must be http://HOST:PORT or https://HOST:PORT"
        yield Problem(path, address, rule, f"give the dashboard's address, {example}", source)
    if not launcher.stages:
        rule = "must name stages with launcher=ray, which runs nothing else on the cluster"
        yield Problem("launcher.stages", [], rule, "leave it out for all stages", source)
    for stage, resources in launcher.ray.items():
        for name, amount in (resources or {}).items():
            # ray/includes/task_options_utils.pxi, prepare_resources: parts of a card, or whole cards
            if not (0 < amount < 1 or (amount >= 1 and amount == int(amount))):
                rule = "must be a positive number, and a whole one above 1"
                remedy = "round it up, or leave it out"
                yield Problem(f"launcher.ray.{stage}.{name}", amount, rule, remedy, source)


def _remote_store(store: str, url: str) -> Iterator[Problem]:
    """Yield a problem if a remote on this machine is the store or a directory in it."""
    address = urlsplit(url)
    if address.scheme in ("file", "local"):
        root, directory = (os.path.realpath(path) for path in (store, unquote(address.path)))
        if os.path.commonpath([root, directory]) == root:
            rule, remedy = "is the store itself, or inside it", "name another directory, or remote=none"
            yield Problem("remote.url", url, rule, remedy, "ours: pipeline/store/remote")


def _heads(config: Config) -> Iterator[Problem]:
    """Yield problems of the sizes of attention heads."""
    model = config.model
    heads = model.num_attention_heads
    if model.head_dim is None and model.hidden_size % heads:
        source = "transformers' modeling_qwen2.py: head_dim"
        yield from multiple_of(
            "model.hidden_size", model.hidden_size, heads, "num_attention_heads", "", source
        )
    elif model.head_size % 2:
        rule = f"head size {model.head_size} must be even"
        wider = f"use {(model.head_size + 1) * heads}"
        remedy = wider if model.head_dim is None else "change model.head_dim"
        yield Problem("model.hidden_size", model.hidden_size, rule, remedy, "ours: rotary pairs")
    groups, source = model.num_key_value_heads, "grouped-query attention: arXiv:2305.13245"
    yield from divides("model.num_key_value_heads", groups, heads, "num_attention_heads", "", source)


def _layouts(config: Config) -> Iterator[Problem]:
    """Yield problems of the roles' layouts: cards, heads, layers and sizes of weights."""
    model = config.model
    for role in ROLES:
        layout = config.layout.role(role)
        if layout.cards != config.cards:
            rule = f"occupies {layout.cards} cards (dp*mp*pp*cp), must be cards={config.cards}"
            another = f"choose another layout, or cards={layout.cards}"
            remedy = another if role == "train" else "leave its degrees null"
            source = "ours: the roles take turns on the same cards"
            yield Problem(f"layout.{role}", layout.name, rule, remedy, source)
        found: list[Problem] = []
        path, degree = f"layout.{role}.model_parallel", layout.model_parallel
        for name, heads in (
            ("num_attention_heads", model.num_attention_heads),
            ("num_key_value_heads", model.num_key_value_heads),
        ):
            source = "mindformers llama_transformer.py:187, Megatron-LM transformer_config.py"
            found += divides(path, degree, heads, name, "", source)
        found += at_most(
            f"layout.{role}.pipeline_stage",
            layout.pipeline_stage,
            model.num_hidden_layers,
            "num_hidden_layers",
            "",
            "mindformers models/utils.py, LayerSetting",
            "use fewer, and raise data_parallel instead",
        )
        if not found and (fault := layouts.offset_fault(model, layout)):
            source = "mindformers models/utils.py, LayerSetting"
            found.append(Problem(f"layout.{role}.offset", list(layout.offset), *fault, source))
        # family_problems says if the family's own section is missing
        is_complete = model.extras is not None or family_of(model).section is None
        if not found and is_complete and (fault := layouts.shape_fault(model, layout)):
            found.append(Problem(path, degree, *fault, "mindformers' shard calls"))
        yield from found


def _lengths(config: Config) -> Iterator[Problem]:
    """Yield problems of sequences that are longer than the model's positions or attention window."""
    model, trained = config.model, config.sft
    growth = config.rollout.prompt_growth
    prompt = config.tokenize.max_prompt_length + growth
    source = "ours: config.json says what it was trained for"
    if config.engine.name == "supervised":
        return  # nothing is sampled; mindformers' rules check the examples' length
    lengths = {"rollout.max_tokens": config.rollout.max_tokens}
    if trained.enabled:
        lengths["sft.max_tokens"] = trained.max_tokens
    for key, max_tokens in lengths.items():
        most = model.max_position_embeddings
        if prompt + max_tokens > most:
            tools = " + rollout.tools_length" if growth else ""
            rule = f"tokenize.max_prompt_length{tools} + {key} = {prompt + max_tokens} must be at most "
            rule += f"model.max_position_embeddings={most}"
            remedy = f"use at most {most - prompt}" if most > prompt else "lower tokenize.max_prompt_length"
            yield Problem(key, max_tokens, rule, remedy, source)
            break
    longest = prompt + max(lengths.values())
    if trained.enabled:
        longest = max(longest, config.tokenize.sft_length)
    if model.sliding_window is not None and model.sliding_window < longest:
        rule = f"must be at least the longest sequence, {longest} tokens: longer ones need windowed attention"
        remedy = "shorten tokenize.max_prompt_length, tokenize.sft_length or rollout.max_tokens"
        source = "ours: no engine computes a window"
        yield Problem("model.sliding_window", model.sliding_window, rule, remedy, source)
