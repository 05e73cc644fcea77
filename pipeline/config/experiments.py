"""Experiments, and the groups chosen besides them, which replace the experiment's values.

Hydra merges an experiment last, so what its file writes into a section would also change a choice that was
made on the command line: `experiment=mindspeed_rl_7b layout=dp2_mp1_pp1` would be trained as the experiment's
dp4_mp2_pp2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config.grammar import parse, word
from pipeline.config.sections import Config
from stages.base.identity import field_types

GROUP = "experiment"
PRESETS = "train/preset"
ROLES = ("train", "generate", "reference")
SWITCHES = (
    "use_seq_parallel", "vocab_emb_dp", "enable_parallel_optimizer", "parallel_optimizer_threshold_kb",
    "recompute", "select_recompute", "opt_offload",
)  # fmt: skip
"""Keys of a role that do not depend on its degrees."""


def compose(
    choices: Sequence[str], compose_with_hydra: Callable[[Sequence[str]], Any], presets: Mapping[str, Path]
) -> Any:
    """Return the unresolved configuration of choices, without Hydra's own section.

    If `choices` contain an experiment and a group, the group's section is as without the experiment's file.
    What the choice does not determine is kept: model.variant, and the switches of a layout chosen by name. If
    they contain an experiment and a preset, the values in the preset's file replace the experiment's. An
    experiment may choose a preset itself (override /train/preset: NAME); its own values then come last.
    `presets`: name -> file.
    """
    from omegaconf import OmegaConf, open_dict

    config = compose_with_hydra(choices)
    chosen = dict(config.hydra.runtime.choices)
    groups = _chosen_groups(choices, chosen) if chosen.get(GROUP) else []
    with open_dict(config):
        del config["hydra"]
        if groups:
            without = compose_with_hydra(_without_experiment(choices, chosen))
            for group in groups:
                section = OmegaConf.to_container(without[group])
                _keep(group, chosen[group], OmegaConf.to_container(config[group]), section)
                config[group] = section
        preset = chosen.get(PRESETS)
        if chosen.get(GROUP) and preset and any(parse(text).key_or_group == PRESETS for text in choices):
            import yaml  # takes 20 ms, which a run with nothing to do does without

            values = yaml.safe_load(presets[preset].read_text(encoding="utf-8"))
            config.train.merge_with({key: value for key, value in values.items() if key != "defaults"})
    return config


def _chosen_groups(choices: Sequence[str], chosen: dict[str, Any]) -> list[str]:
    """Return the sections whose group is chosen on the command line."""
    parsed = [parse(text) for text in choices]
    keys = [item.key_or_group for item in parsed if item.input_line[:1] not in "+~" and _is_choice(item)]
    return [key for key in dict.fromkeys(keys) if key in chosen and key in field_types(Config)]


def _without_experiment(choices: Sequence[str], chosen: dict[str, Any]) -> list[str]:
    """Return overrides with the same choices of groups, and without the experiment."""
    sections = [f"{group}={word(name)}" for group, name in chosen.items() if group in field_types(Config)]
    others = [
        text
        for text in choices
        if (key := parse(text).key_or_group) != GROUP
        and not (key in chosen and key != PRESETS and _is_choice(parse(text)))
    ]
    return [*sections, *others]


def _is_choice(override: Any) -> bool:
    return isinstance(override.value(), str) and override.package is None


def _keep(group: str, name: str, experiment: Any, section: Any) -> None:
    """Copy what the choice of a group does not determine from the experiment's section."""
    if group == "model":
        section["variant"] = experiment["variant"]
    if group == "layout" and name.startswith("dp"):
        for role in ROLES:
            section[role] |= {key: experiment[role][key] for key in SWITCHES}
