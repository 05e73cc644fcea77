"""Programs of the engines: versions that work, and recognition by files of their checkouts."""

from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.engines.declaration import Window

MARKS = (
    ("MindSpeed-RL", "mindspeed_rl"),
    ("MindSpeed-LLM", "mindspeed_llm"),
    ("MindSpeed", "mindspeed"),
    ("Megatron-LM", "megatron/core"),
    ("mindrlhf", "mindrlhf/trainer"),
    ("mindrlhf", "mindrlhf/configs"),
    ("mindformers", "run_mindformer.py"),
    ("mindformers", "mindformers/__init__.py"),
    ("verl", "verl/trainer"),
    ("vllm-mindspore", "vllm_mindspore"),
    ("vLLM", "vllm/__init__.py"),
)
"""Program and a path in its checkouts. The first match wins: a checkout of MindSpeed-RL contains copies of
the three programs that follow it."""


def windows(file: Path, *groups: str) -> tuple[Window, ...]:
    """Return the versions that work, from groups of a YAML file: distribution: [versions, reason]."""
    import yaml  # takes 20 ms, which a run with nothing to do does without

    listed = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tuple((name, *window) for group in groups for name, window in listed[group].items())


def program_in(home: str | Path) -> str | None:
    """Return the program whose checkout `home` is, or None if it is none of MARKS."""
    return next((program for program, mark in MARKS if (Path(home) / mark).exists()), None)


def mismatch(home: str | Path, expected: str, fault: str) -> str:
    """Return why `home` is no checkout of `expected`: it belongs to another program, or `fault`."""
    program = program_in(home)
    if program is not None and program != expected.rpartition("/")[2]:
        return f"is a checkout of {program}, must be one of {expected}"
    return f"must be a checkout of {expected}: {fault}"


def read(setting: str, home: str, file: str | Path, expected: str, remedy: str = "") -> str:
    """Return the text of a file in the checkout of `expected` that a setting names.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return (Path(home) / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        rule = mismatch(home, expected, f"{file} must be readable ({error})")
        raise ConfigError([Problem(setting, home, rule, remedy)]) from None
