"""The model card of an exported model, README.md: what it is, how to ask it, and how it was made.

What users wrote and models said stands escaped or in fenced blocks; addresses are without secrets.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from stages.base.redact import redact
from stages.report.artifacts import Run, mapping
from stages.report.headline import tiles
from stages.report.text import neutral, shorten

RECIPE = ("tokenize", "rollout", "reward", "train")
EXAMPLE = 2000
"""Characters of an example's text."""
USAGE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(DIRECTORY)
model = AutoModelForCausalLM.from_pretrained(DIRECTORY)
asked = [{"role": "user", "content": QUESTION}]
asked = {"conversation": asked, "add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
inputs = tokenizer.apply_chat_template(**asked)
answer = model.generate(**inputs, do_sample=False)[0, inputs["input_ids"].shape[1]:]
print(tokenizer.decode(answer, skip_special_tokens=True))
```"""


def model_card(
    config: Mapping[str, Any], inputs: Mapping[str, Path], licences: Sequence[Path], bare: bool
) -> str:
    """README.md as text.

    Args:
        config: sections model, dataset, tokenize, rollout, reward and train; `command`, overrides without
            places, where they are known.
        inputs: artifacts; grpo and evaluate are read where they are there.
        licences: the base's licence files, and its own card.
        bare: whether training asked bare questions.
    """
    there = {name: path for name, path in inputs.items() if path.is_dir()}
    artifacts = Run.load({name: there[name] for name in ("grpo", "evaluate") if name in there})
    model, dataset, name = config["model"], config["dataset"], plain(str(config["model"]["name"]))
    made = artifacts.manifests.get("grpo", {})
    engine = mapping(mapping(made.get("config")).get("engine")).get("name")
    by = f" (engine={plain(str(engine))})" if engine else ""
    rewards = zip(config["reward"]["functions"], config["reward"]["weights"], strict=True)
    parts = [
        _front(model, licences),
        f"# {name} after GRPO on {plain(str(dataset['name']))}",
        f"Trained by group relative policy optimisation with grpoflow on MindSpore{by}.",
        "## Accuracy",
        *_accuracy(artifacts),
        "## How to ask it",
        USAGE,
        "The chat template makes of one question the prompt of training: "
        + ("the question and, if any, the suffix below; there are no turns." if bare else _framed(config)),
        "generation_config.json ends and samples answers as the evaluation did; greedy is `do_sample=False`.",
        "## How it was made",
        f"- Base model: {_origin(model, name)}",
        f"- Data: {_origin(dataset, plain(str(dataset['name'])))}",
        "- Rewards: " + ", ".join(f"{plain(str(reward))} × {weight:g}" for reward, weight in rewards),
        "Recipe:",
        fenced(yaml.safe_dump(_recipe(config), sort_keys=False, allow_unicode=True), "yaml"),
        *_command(config.get("command")),
        *_versions(made),
        "## Licence of the base",
        _licence(licences),
        *_example(artifacts),
    ]
    return "\n\n".join(parts) + "\n"


def _front(model: Mapping[str, Any], licences: Sequence[Path]) -> str:
    """Return the front matter, which hubs read."""
    base = _hub_id(model)
    values: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    values |= {"tags": ["grpo", "mindspore"]} | ({"base_model": base} if base else {})
    front = _front_of(next((file for file in licences if file.name == "README.md"), None))
    keys = ("license", "license_name", "license_link")
    values |= {key: front[key] for key in keys if isinstance(front.get(key), str)}
    return f"---\n{yaml.safe_dump(values, sort_keys=False)}---"


def _front_of(card: Path | None) -> dict[str, Any]:
    """Return the front matter of the base model's card; {} if there is none, or it is malformed."""
    text = card.read_text(encoding="utf-8", errors="replace") if card is not None else ""
    match = re.match(r"---\r?\n(.*?)\r?\n---\s", text, re.DOTALL)
    try:
        return mapping(yaml.safe_load(match[1])) if match else {}
    except yaml.YAMLError:
        return {}


def _hub_id(model: Mapping[str, Any]) -> str:
    hub = mapping(model.get("hub"))
    if model["source"] != "modelscope" or not hub:
        return ""
    return str(hub.get("id") or hub.get(str(model["variant"]), ""))


def _accuracy(artifacts: Run) -> list[str]:
    evaluation = artifacts.result("evaluate")
    rows = [
        f"| {plain(tile.label)} | {tile.value} | {tile.detail} |"
        for tile in tiles(evaluation, with_sft=False)
    ]
    if not rows:
        return ["Not evaluated when this was exported."]
    caption = (
        f"Of {evaluation.get('prompts')} held-out prompts, greedily unless it says @; shares in percent."
    )
    return [caption, "\n".join(["| | | |", "|---|---|---|", *rows])]


def _framed(config: Mapping[str, Any]) -> str:
    added = [key for key in ("system_prompt", "prompt_suffix") if config["tokenize"][key]]
    return "the base's own template" + (f", with {' and '.join(added)} as below." if added else ".")


def _origin(section: Mapping[str, Any], name: str) -> str:
    """Return the origin of a model or dataset, without paths of this machine."""
    source, hub = section["source"], mapping(section.get("hub"))
    if source == "modelscope":
        repository = _hub_id(section) or str(hub.get("id", ""))
        return f"{name}, ModelScope {plain(repository)} at {plain(str(hub.get('revision')))}"
    files = [mapping(file).get("name") for file in mapping(section.get("files")).values()]
    if source == "url":
        return f"{name}, {', '.join(plain(redact(str(file))) for file in files if file)}"
    return f"{name} ({'made from the seed' if source == 'builtin' else 'files of the author'})"


def _recipe(config: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: dict(config[name]) for name in RECIPE}
    values["reward"] = json.loads(json.dumps(values["reward"]))  # YAML knows no tuples
    for key in ("resume_from", "loggers"):  # paths and places, which change no number
        values["train"].pop(key, None)
    return values | ({"seed": config["seed"]} if "seed" in config else {})


def _command(overrides: Sequence[str] | None) -> list[str]:
    if overrides is None:
        return []
    return ["Command:", fenced(redact(shlex.join(["grpoflow", "run", *overrides])), "sh")]


def _versions(manifest: Mapping[str, Any]) -> list[str]:
    versions = mapping(manifest.get("versions"))
    commit = manifest.get("git_commit")
    packages = [f"{name} {version}" for name, version in versions.items()]
    packages += [f"grpoflow's commit {commit}"] if commit else []
    return ["Versions: " + plain(", ".join(packages))] if packages else []


def _licence(licences: Sequence[Path]) -> str:
    files = [file.name for file in licences if file.name != "README.md"]
    if files:
        return f"As in the base's directory: {', '.join(f'[{plain(name)}]({name})' for name in files)}"
    return "None lay in the base's directory; where the base came from, its licence is told."


def _example(artifacts: Run) -> list[str]:
    rows = artifacts.rows("evaluate", "samples.jsonl")[:1]
    if not rows:
        return []
    prompt, answer = (fenced(shorten(str(rows[0].get(key, "")), EXAMPLE)) for key in ("prompt", "after"))
    return ["## An example", "The first held-out prompt:", prompt, "Its greedy answer:", answer]


def plain(text: str) -> str:
    """Text that Markdown takes as it stands, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|!&~$:@])", r"\\\1", " ".join(neutral(text).split()))


def fenced(text: str, language: str = "") -> str:
    """Text in a block that it cannot end."""
    ticks = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}{language}\n{neutral(text).rstrip()}\n{fence}"
