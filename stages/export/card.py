"""The model card (README.md) of an exported model: accuracy, usage and origin.

card.md.jinja has the text. Texts of users and models are escaped or in fenced blocks; URLs have no secrets.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stages.base.reader import read
from stages.base.redact import redact
from stages.fetch.config import DatasetConfig, remote_files
from stages.grpo.config import AGENT_KEYS
from stages.models.config import ModelConfig
from stages.report.artifacts import Artifacts, mapping
from stages.report.headline import tiles
from stages.report.text import neutral, shorten
from stages.tokenize.config import BLOCK_KEYS

PLACES = ("url", "key_variable", "cache", "python")
"""Keys of rewards that name places of one machine."""
RECIPE = ("tokenize", "rollout", "reward", "train")


def model_card(
    config: Mapping[str, Any], inputs: Mapping[str, Path], licences: Sequence[Path], untemplated: bool
) -> str:
    """Return README.md as text.

    Args:
        config: sections model, dataset, tokenize, rollout, reward and train; `command`, the run's overrides
            without paths, if known.
        inputs: artifacts; grpo and evaluate are read if they exist.
        licences: the base model's licence files, and its card.
        untemplated: True if the training prompts were the bare questions.
    """
    artifacts = Artifacts.load({name: inputs[name] for name in ("grpo", "evaluate") if name in inputs})
    model = read(ModelConfig, config["model"], "model")
    dataset, command = read(DatasetConfig, config["dataset"], "dataset"), config.get("command")
    name, data = plain(model.name), plain(dataset.name)
    manifest, evaluation = artifacts.manifests.get("grpo", {}), artifacts.result("evaluate")
    rewards = zip(config["reward"]["functions"], config["reward"]["weights"], strict=True)
    samples = artifacts.rows("evaluate", "samples.jsonl")[:1]
    values = {
        "front": _front(model, licences),
        "name": name,
        "dataset": data,
        "engine": plain(str(mapping(mapping(manifest.get("config")).get("engine")).get("name") or "")),
        "tiles": tiles(evaluation, with_sft=False),
        "prompts": evaluation.get("prompts"),
        "untemplated": untemplated,
        "additions": [key for key in ("system_prompt", "prompt_suffix") if config["tokenize"][key]],
        "model_origin": _origin(model, name),
        "dataset_origin": _origin(dataset, data),
        "rewards": [f"{plain(str(reward))} × {weight:g}" for reward, weight in rewards],
        "recipe": yaml.safe_dump(_recipe(config), sort_keys=False, allow_unicode=True),
        "command": None if command is None else redact(shlex.join(["grpoflow", "run", *command])),
        "versions": _versions(manifest),
        "licences": [file.name for file in licences if file.name != "README.md"],
        "examples": [
            [shorten(str(row.get(key, "")), 2000) for key in ("prompt", "after")] for row in samples
        ],
    }
    environment = Environment(  # noqa: S701 (Markdown; plain and fenced escape)
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(plain=plain, fenced=fenced)
    return str(environment.get_template("card.md.jinja").render(values))


def _front(model: ModelConfig, licences: Sequence[Path]) -> str:
    """Return the front matter for hubs, with the licence from the base model's card."""
    card = next((file for file in licences if file.name == "README.md"), None)
    text = card.read_text(encoding="utf-8", errors="replace") if card is not None else ""
    match = re.match(r"---\r?\n(.*?)\r?\n---\s", text, re.DOTALL)
    try:
        base = mapping(yaml.safe_load(match[1])) if match else {}
    except yaml.YAMLError:
        base = {}
    values: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    values |= {"tags": ["grpo", "mindspore"]}
    values |= {"base_model": model.hub_id} if model.source == "modelscope" else {}
    keys = ("license", "license_name", "license_link")
    values |= {key: base[key] for key in keys if isinstance(base.get(key), str)}
    return str(yaml.safe_dump(values, sort_keys=False)).rstrip()


def _origin(section: ModelConfig | DatasetConfig, name: str) -> str:
    """Return the origin of a model or dataset, without paths of this machine."""
    if section.source == "modelscope" and section.hub is not None:
        repository = section.hub_id if isinstance(section, ModelConfig) else section.hub.id
        return f"{name}, ModelScope {plain(repository)} at {plain(section.hub.revision)}"
    if isinstance(section, DatasetConfig) and section.source == "url":
        return f"{name}, {', '.join(plain(redact(file.name)) for _, file in remote_files(section))}"
    return f"{name} ({'made from the seed' if section.source == 'builtin' else 'files of the author'})"


def _recipe(config: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: dict(config[name]) for name in RECIPE}
    for key in BLOCK_KEYS:  # not of questions
        values["tokenize"].pop(key, None)
    for key in AGENT_KEYS if values["rollout"].get("agent") is None else ():
        values["rollout"].pop(key, None)
    for name in ("rollout", "reward"):
        values[name] = json.loads(json.dumps(values[name]))  # YAML has no tuples
    values["reward"].pop("timeout_s", None)  # changes no number, as the paths below
    for key in ("judge", "code"):
        settings = values["reward"].pop(key, None)
        if settings is not None and key in values["reward"]["functions"]:
            values["reward"][key] = {k: v for k, v in settings.items() if k not in PLACES}
    for key in ("preset", "resume_from", "loggers"):
        values["train"].pop(key, None)
    if not values["train"].get("lora_rank"):
        values["train"].pop("lora_rank", None)
    return values | ({"seed": config["seed"]} if "seed" in config else {})


def _versions(manifest: Mapping[str, Any]) -> list[str]:
    commit = manifest.get("git_commit")
    packages = [f"{name} {version}" for name, version in mapping(manifest.get("versions")).items()]
    return [*packages, f"grpoflow's commit {commit}"] if commit else packages


def plain(text: str) -> str:
    """Return text on one line, with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#|!&~$:@])", r"\\\1", " ".join(neutral(text).split()))


def fenced(text: str, language: str = "") -> str:
    """Return a code block with a fence that the text cannot end."""
    ticks = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}{language}\n{neutral(text).rstrip()}\n{fence}"
