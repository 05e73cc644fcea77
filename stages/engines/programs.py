"""Programs of the engines, recognised by files of their checkouts."""

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
"""Program and a path in its checkouts. The first match wins: a checkout of MindSpeed-RL contains copies of
the three programs that follow it."""


def program_in(home: str | Path) -> str | None:
    """Return the program whose checkout `home` is, or None if it is none of MARKS."""
    return next((program for program, mark in MARKS if (Path(home) / mark).exists()), None)


def mismatch(home: str | Path, expected: str, fault: str) -> str:
    """Return why `home` is no checkout of `expected`: it belongs to another program, or `fault`."""
    program = program_in(home)
    if program is not None and program != expected.rpartition("/")[2]:
        return f"is a checkout of {program}, must be one of {expected}"
    return f"must be a checkout of {expected}: {fault}"
