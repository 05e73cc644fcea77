"""Rules between sections that hold for all engines; `check` also applies those of sections and engines."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from launch.config import LOOPBACK
from pipeline import engines
from pipeline.errors import Problem
from stages.base.layout import ROLES, Role
from stages.base.rules import Broken, Rules, at_most, divide, hold, indices, multiple_of
from stages.catalog import STAGES
from stages.fetch.config import DATASET, MODEL
from stages.fetch.sources import FETCH
from stages.grpo.rules import EVALUATE, TRAIN
from stages.models import layouts
from stages.models.config import IDS, SHAPE
from stages.models.families import RULES as FAMILY
from stages.models.families import Trained, family_of
from stages.rewards.config import RULES as REWARD
from stages.tokenize.config import RULES as TOKENIZE

if TYPE_CHECKING:
    from pipeline.config.sections import Config

RULES: Rules[Config] = Rules("run")
MOST_STORE_BYTES = 440
"""Length of a store's path with which SQLite, which MindRecord uses, opens the index of a dataset: it accepts
504 bytes, of which up to 64 are the rest of the path (/tokenize/.building-DIGITS+N/train.mindrecord.db)."""
MOST_NAME_BYTES = 255
"""Length of a file name that Linux accepts."""
SET_BY_LAUNCHER = re.compile(
    r"--(?:job-name|nodes|ntasks(?:-per-\w+)?|array|output)(?![\w-]).*|-[JNnao](?!-).*"
)


def check(config: Config) -> list[Problem]:
    """Return the problems of all rules that `config` breaks."""
    engine = engines.get(config.engine.name)
    family = FAMILY.check(Trained(config.model, engine.name, engine.trains, engines.training))
    engine_problems = [
        problem
        for engine in engines.chosen(config)
        if not family or engine.name == engines.SUPERVISED
        for problem in engine.rules.check(engine.subject(config, config.launcher.cards_per_node))
    ]
    return [*family, *RULES.check(config), *engine_problems, *SECTIONS.check(config)]


@RULES.row("store", "ours; SQLite's os_unix.c: MAX_PATHNAME")
def _store(config: Config) -> Broken:
    """Require a directory, no URL, whose path neither begins with a tilde nor is too long for SQLite."""
    if not config.store:
        return "must name a directory", "give store=DIR, or unset GRPOFLOW_STORE"
    if "://" in config.store:
        rule = "is a URL; a store is a directory of this machine"
        return rule, "give store=DIR, and share artifacts at a URL with remote=URL"
    if config.store.startswith("~"):
        return "must be a complete path: ~ is not replaced", f"use {os.path.expanduser(config.store)}"
    paths = [os.fsencode(find(config.store)) for find in (os.path.abspath, os.path.realpath)]
    if max(map(len, paths)) > MOST_STORE_BYTES:
        rule = f"is a path of {max(map(len, paths))} bytes, must be at most {MOST_STORE_BYTES}"
        return rule, "choose a directory with a shorter path, links followed"
    longest = max(len(name) for name in paths[0].split(b"/"))
    if longest > MOST_NAME_BYTES:
        return f"has a name of {longest} bytes, must be at most {MOST_NAME_BYTES}", "shorten it"
    return None


@RULES.row("launcher.sbatch[{}]", "ours: launch/nodes/slurm.py", each=indices("launcher.sbatch"))
def _sbatch(config: Config, index: int) -> Broken:
    """Require options other than those that follow from the layout and by which the job is found again."""
    if SET_BY_LAUNCHER.fullmatch(config.launcher.sbatch[index]) is None:
        return None
    return "is set by the launcher", "leave it out; layout and launcher.cards_per_node give the nodes"


RULES.must(
    "launcher.ssh",
    hold(lambda config: config.launcher.ssh, "must be the ssh command", "leave it out"),
    "ours: launch/nodes/fan_out.py",
)


@RULES.row("launcher.master_addr", "ours: launch/nodes/slurm.py")
def _address_of_slurm(config: Config) -> Broken:
    """Require the default with launcher=slurm, whose job connects at the address of its first node."""
    if config.launcher.name != "slurm" or config.launcher.master_addr in LOOPBACK:
        return None
    return "has no effect with launcher=slurm: Slurm names the address of the first node", "leave it out"


@RULES.row("remote.url", "ours", unless=("store",))
def _remote_store(config: Config) -> Broken:
    """Require a directory outside the store for a remote on this machine."""
    address = urlsplit(config.remote.url or "")
    if address.scheme not in ("file", "local"):
        return None
    store, directory = (os.path.realpath(path) for path in (config.store, unquote(address.path)))
    if os.path.commonpath([store, directory]) != store:
        return None
    return "is the store itself, or inside it", "name another directory, or remote=none"


@RULES.row("remote.stages[{}]", "ours", each=indices("remote.stages"))
def _remote_stage(config: Config, index: int) -> Broken:
    """Require names of stages."""
    if config.remote.stages[index] in STAGES:
        return None
    return "is no stage", f"known: {', '.join(STAGES)}"


RULES.must(
    "model.hidden_size",
    multiple_of("model.num_attention_heads", "num_attention_heads"),
    "transformers' modeling_qwen2.py: head_dim",
    when=lambda config: config.model.head_dim is None,
)


@RULES.row("model.hidden_size", "ours: rotary pairs", unless=("hidden_size",))
def _even_heads(config: Config) -> Broken:
    """Require an even head size."""
    model = config.model
    if model.head_size % 2 == 0:
        return None
    wider = f"use {(model.head_size + 1) * model.num_attention_heads}"
    return (
        f"head size {model.head_size} must be even",
        wider if model.head_dim is None else "change model.head_dim",
    )


RULES.must(
    "model.num_key_value_heads",
    divide("model.num_attention_heads", "num_attention_heads"),
    "grouped-query attention: arXiv:2305.13245",
)


@RULES.row("layout.{}", "ours: the roles take turns on the same cards", each=ROLES)
def _occupied(config: Config, role: Role) -> Broken:
    """Require that each role occupies all cards."""
    layout = config.layout.role(role)
    if layout.cards == config.cards:
        return None
    rule = f"occupies {layout.cards} cards (dp*mp*pp*cp), must be cards={config.cards}"
    remedy = f"choose another layout, or cards={layout.cards}"
    return rule, remedy if role == "train" else "leave its degrees null", layout.name


for _name in ("num_attention_heads", "num_key_value_heads"):
    RULES.must(
        "layout.{}.model_parallel",
        divide(lambda config, role, name=_name: getattr(config.model, name), _name),
        "mindformers llama_transformer.py:187, Megatron-LM transformer_config.py",
        name=_name.removeprefix("num_"),
        each=ROLES,
    )
RULES.must(
    "layout.{}.pipeline_stage",
    at_most(
        lambda config, role: config.model.num_hidden_layers,
        "num_hidden_layers",
        remedy="use fewer, and raise data_parallel instead",
    ),
    "mindformers models/utils.py, LayerSetting",
    each=ROLES,
)
_HEADS = ("attention_heads", "key_value_heads", "pipeline_stage")


@RULES.row("layout.{}.offset", "mindformers models/utils.py, LayerSetting", each=ROLES, unless=_HEADS)
def _offset(config: Config, role: Role) -> Broken:
    """Require offsets that fit the pipeline stages and add up to all layers."""
    return layouts.offset_fault(config.model, config.layout.role(role))


@RULES.row("layout.{}.model_parallel", "mindformers' shard calls", each=ROLES, unless=(*_HEADS, "offset"))
def _divisible(config: Config, role: Role) -> Broken:
    """Require that model_parallel divides the sizes of the model's weights."""
    if config.model.extras is None and family_of(config.model).section is not None:
        return None  # FAMILY says what is missing
    return layouts.shape_fault(config.model, config.layout.role(role))


def _too_long(config: Config, key: str, max_tokens: int) -> Broken:
    """Require that the longest prompt and `max_tokens` further tokens fit into the model's positions."""
    prompt, most = config.tokenize.max_prompt_length, config.model.max_position_embeddings
    if prompt + max_tokens <= most:
        return None
    rule = f"tokenize.max_prompt_length + {key} = {prompt + max_tokens} must be at most "
    rule += f"model.max_position_embeddings={most}"
    return rule, f"use at most {most - prompt}" if most > prompt else "lower tokenize.max_prompt_length"


@RULES.row("rollout.max_tokens", "ours: config.json says what it was trained for")
def _longest(config: Config) -> Broken:
    """Require that prompt and completion fit into model.max_position_embeddings."""
    return _too_long(config, "rollout.max_tokens", config.rollout.max_tokens)


@RULES.row("sft.max_tokens", "ours: config.json says what it was trained for", unless=("longest",))
def _longest_example(config: Config) -> Broken:
    """Require that prompt and answer of supervised training fit into model.max_position_embeddings."""
    return _too_long(config, "sft.max_tokens", config.sft.max_tokens) if config.sft.enabled else None


@RULES.row("model.sliding_window", "ours: no engine computes a window")
def _window(config: Config) -> Broken:
    """Require a window of at least the longest sequence."""
    window, prompt = config.model.sliding_window, config.tokenize.max_prompt_length
    longest = prompt + max(config.rollout.max_tokens, config.sft.max_tokens if config.sft.enabled else 0)
    if config.sft.enabled:
        longest = max(longest, config.tokenize.sft_length)
    if window is None or window >= longest:
        return None
    rule = f"must be at least the longest sequence, {longest} tokens: longer ones need windowed attention"
    return rule, "shorten tokenize.max_prompt_length, tokenize.sft_length or rollout.max_tokens"


RULES.must(
    "tokenize.kind",
    hold(
        lambda config: config.tokenize.kind == "grpo",
        "must be grpo in a run",
        "make files for mindformers with `grpoflow tokenize`",
    ),
    "ours: stages/grpo/data.py",
)


@RULES.row("sft.enabled", "ours: its sft stage is skipped")
def _weights_of_sft(config: Config) -> Broken:
    """Refuse the supervised stage with engines that start from the fetched weights."""
    if not config.sft.enabled or not engines.get(config.engine.name).programs:
        return None
    rule = f"engine={config.engine.name} starts from the fetched weights"
    return rule, "set sft.enabled=false, and engine.sft=mindformers where it should be trained first"


SECTIONS: Rules[Config] = Rules("sections")
SECTIONS.include(TRAIN, lambda config: config)
SECTIONS.include(REWARD, lambda config: config.reward)
SECTIONS.include(EVALUATE, lambda config: config.evaluate)
SECTIONS.include(TOKENIZE, lambda config: config.tokenize)
SECTIONS.include(MODEL, lambda config: config.model)
SECTIONS.include(IDS, lambda config: config.model)
SECTIONS.include(SHAPE, lambda config: config.model)
SECTIONS.include(DATASET, lambda config: config.dataset)
SECTIONS.include(FETCH, lambda config: config.fetch)
