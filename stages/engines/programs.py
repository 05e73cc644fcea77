"""The programs that engines are run from, recognised by the files of a directory."""

from pathlib import Path

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
"""Program and a path that its checkouts hold. The first match wins: a checkout of MindSpeed-RL holds copies
of the three programs that follow it."""


def program_in(home: str | Path) -> str | None:
    """Return the program whose checkout `home` is, or None if it is none of MARKS."""
    return next((program for program, mark in MARKS if (Path(home) / mark).exists()), None)


def mismatch(home: str | Path, expected: str, fault: str) -> str:
    """Return why `home` is no checkout of `expected`: it is one of another program, or has a `fault`."""
    program = program_in(home)
    if program is not None and program != expected.rpartition("/")[2]:
        return f"is a checkout of {program}, must be one of {expected}"
    return f"must be a checkout of {expected}: {fault}"
