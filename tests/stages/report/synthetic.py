"""A made-up finished run: the artifacts that the report reads, without running any stage."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from stages.report.compare import ComparedRun
from stages.report.sweep import SweepPoint
from tests.stages.fetch.settings import write_lines
from tests.stages.weights.checkpoints import make_layout

START = 1_760_000_000.0
SPANS = {
    "fetch": (0, 2.1), "fetch_dataset": (0.1, 1.4), "convert": (2.2, 3.0), "strategy": (0.2, 0.5),
    "tokenize": (2.3, 7.9), "split": (3.2, 3.9), "sft": (8.0, 92.0), "grpo": (92.3, 301.0),
    "evaluate": (301.2, 331.0), "export": (301.3, 302.8),
}  # fmt: skip


def role(data_parallel: int, model_parallel: int) -> dict[str, Any]:
    """One role's layout section."""
    return asdict(make_layout(data_parallel=data_parallel, model_parallel=model_parallel))


CONFIG: dict[str, Any] = {
    "seed": 0,
    "model": {"name": "tiny", "variant": "base", "hidden_size": 128, "num_hidden_layers": 4,
              "num_attention_heads": 4, "num_key_value_heads": 2,
              "eos_token_id": None, "torch_dtype": "float32"},
    "dataset": {"name": "arith", "train_rows": 4000, "test_rows": 1000, "path": None},
    "layout": {"name": "dp1_mp2_pp1", "train": role(1, 2), "generate": role(2, 1), "reference": role(1, 2)},
    "train": {"steps": 80, "lr": 3e-5, "beta": 0.01, "epsilon_low": 0.2, "epsilon_high": 0.2},
    "rollout": {"num_generations": 8, "max_completion_length": 64, "temperature": 1.0},
    "reward": {"functions": ["accuracy", "answer_format"], "weights": [1.0, 0.2]},
}  # fmt: skip


def metrics(steps: int = 80) -> list[dict[str, Any]]:
    """Rows like those of a training run that goes well."""
    draw = random.Random(0)
    rows = []
    for step in range(1, steps + 1):
        done = 1 - math.exp(-2.5 * step / steps)
        accuracy = 0.45 + 0.3 * done + draw.gauss(0, 0.03)
        mean = 34 - 8 * done + draw.gauss(0, 1)
        rows.append({
            "step": step, "time_s": START + 2.6 * step, "reward": accuracy + 0.2,
            "reward_std": 0.45 - 0.15 * done, "accuracy": accuracy,
            "sampled_groups": 32.0, "reward_std/accuracy": 0.4, "reward_std/answer_format": 0.2,
            "reward_stderr": 0.06, "accuracy_stderr": 0.07, "reward_stderr/accuracy": 0.07,
            "reward_stderr/answer_format": 0.03, "completion_length_stderr": 1.2,
            "kl_stderr": 0.002 * done, "entropy_stderr": 0.02,
            "reward/accuracy": accuracy, "reward/answer_format": min(1.0, 0.9 + 0.1 * done),
            "kl": 0.02 * done + abs(draw.gauss(0, 0.001)), "entropy": 0.6 - 0.3 * done + draw.gauss(0, 0.01),
            "loss": draw.gauss(0, 0.01), "grad_norm": 0.5 + abs(draw.gauss(0, 0.1)),
            "lr": 3e-5 * (1 + math.cos(math.pi * step / steps)) / 2, "clip_fraction": 0.002 * done,
            "completion_length": mean, "completion_length_max": min(64.0, mean * 1.8),
            "completion_cut_share": 0.03 * (1 - done), "zero_variance_share": 0.2 + 0.3 * done,
            "rollout_s": 1.4,
            "reference_s": 0.2, "train_s": 0.9, "step_s": 2.6, "tokens_per_s": 3300 + draw.gauss(0, 80),
            "completions_per_s": 98.0, "peak_memory_gib": 1.6,
        })  # fmt: skip
    return rows


def warmup(steps: int = 150) -> list[dict[str, Any]]:
    """Rows like those of the supervised warm-up."""
    draw = random.Random(1)
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        rows.append({"step": step, "loss": 0.3 + 4 * math.exp(-step / 25) + draw.gauss(0, 0.03), "lr": 2e-3})
        if step % 25 == 0:
            rows[-1]["accuracy_check"] = 0.55 / (1 + math.exp(-(step - 100) / 15))
    return rows


def completions() -> list[dict[str, Any]]:
    """Rows of completions.jsonl: lengths shrink over the run, with a tail."""
    draw = random.Random(2)
    return [
        {"step": step, "prompt": "Tom has 3 and 4 apples. How many?", "completion": "3+4=7\n#### 7",
         "solution": "#### 7", "reward": 1.2, "parts": {"accuracy": 1.0, "answer_format": 1.0},
         "length": min(64, int(draw.lognormvariate(3.4 - 0.004 * step, 0.3)))}
        for step in range(1, 81) for _ in range(16)
    ]  # fmt: skip


def groups_of_steps(steps: int) -> list[dict[str, Any]]:
    """Rows of completions.jsonl as engine=local writes them: four groups of eight completions per step."""
    draw = random.Random(3)
    rows = []
    for step in range(1, steps + 1):
        for number in range(4):
            for _ in range(8):
                right = draw.random() < 0.4 + 0.3 * step / steps
                words = "so " * draw.randint(1, 60)
                rows.append({
                    "step": step, "prompt": f"Tom has {number} and 4 apples at step {step}. How many?",
                    "completion": f"{number}+4={number + 4}\n{words}\n#### {number + 4 if right else 99}",
                    "solution": f"#### {number + 4}", "reward": 1.2 if right else draw.choice((0.0, 0.2)),
                    "parts": {"number": float(right), "answer_format": 1.0}, "length": 10 + len(words) // 3,
                    "cut": draw.random() < 0.1, "advantage": draw.gauss(0, 1),
                })  # fmt: skip
    return rows


def samples(count: int = 20) -> list[dict[str, Any]]:
    """Rows of samples.jsonl."""
    return [
        {"prompt": f"Tom has {i}, 7, 8 and 2 apples in his baskets. How many apples does he have?",
         "solution": f"{i}+7={i + 7}\n#### {i + 17}", "before": f"#### {i + (16 if i % 3 == 0 else 17)}",
         "after": f"{i}+7={i + 7}\n{i + 7}+8={i + 15}\n{i + 15}+2={i + 17}\n#### {i + 17}",
         "before_reward": 0.2 if i % 3 == 0 else 1.2, "after_reward": 1.2,
         "before_parts": {"accuracy": 0.0 if i % 3 == 0 else 1.0, "answer_format": 1.0},
         "after_parts": {"accuracy": 1.0, "answer_format": 1.0},
         **({"samples": 8, "before_samples_right": i % 8, "after_samples_right": 8} if i < 10 else {})}
        for i in range(count)
    ]  # fmt: skip


EVALUATION = {
    "accuracy_sft": 0.512, "accuracy_grpo": 0.743, "gain": 0.231, "prompts": 1000,
    "pass_at_k": {"k": 8, "sft": 0.871, "grpo": 0.914}, "mean_at_k": {"k": 8, "sft": 0.463, "grpo": 0.701},
    "worked_share": {"sft": 0.42, "grpo": 0.81},
}  # fmt: skip
LENGTHS = {"mean": 31.2, "percentiles": {"0": 24, "50": 31, "95": 38, "100": 44},
           "histogram": {"edges": list(range(24, 33)), "rows": [1, 3, 17, 40, 88, 61, 12, 1]}}  # fmt: skip


def card(rows: int) -> dict[str, Any]:
    """One file's part of the data card."""
    return {"rows_in": rows, "rows_out": rows - 1, "dropped": {"too long": 1}, "truncated": {},
            "duplicates": 0,
            "lengths": {"prompt_ids": LENGTHS},
            "samples": [{"prompt": "Tom has 3 and 4 apples.", "solution": "#### 7"}]}  # fmt: skip


CARD = {
    "files": {"train": card(4000), "sft": card(4000), "test": card(1000)},
    "tokenizer": {"size": 512, "bos": 0, "eos": [2], "pad": 0},
}


def make_run(root: Path, config: Mapping[str, Any] = CONFIG) -> dict[str, Path]:
    """Write every stage's artifact below `root`; returns stage -> directory."""
    run = {}
    for number, (stage, (start, end)) in enumerate(SPANS.items()):
        run[stage] = root / stage
        run[stage].mkdir(parents=True)
        files = {"result.json": {"size": 321, "sha256": "0" * 64}}
        if stage in ("split", "sft", "grpo"):
            files |= {
                f"train/rank_{k}/model.safetensors": {"size": 1_700_000 + k, "sha256": "1" * 64}
                for k in (0, 1)
            }
        if stage == "sft":
            generate = {"size": 3_300_000, "sha256": "2" * 64}
            files |= {f"generate/rank_{k}/model.safetensors": generate for k in (0, 1)}
        manifest = {
            "format": 1, "stage": stage, "fingerprint": f"{number:x}7c0ffee" * 8, "config": dict(config),
            "inputs": {"fetch": "0" * 64} if number else {}, "files": files,
            "versions": {"python": "3.11.9", "mindspore": "2.7.0", "numpy": "1.26.4"}, 
            "git_commit": "5efe52c" + "0" * 33,
            "seed": 0, "started": START + start, "ended": START + end, "host": "workstation",
            "peak_memory_gib": 0.2 + 0.15 * number,
        }  # fmt: skip
        (run[stage] / "manifest.json").write_text(json.dumps(manifest))
    write_lines(run["grpo"] / "metrics.jsonl", *metrics())
    write_lines(run["grpo"] / "completions.jsonl", *completions())
    write_lines(run["sft"] / "metrics.jsonl", *warmup())
    write_lines(run["evaluate"] / "samples.jsonl", *samples())
    results = {"evaluate": EVALUATION, "tokenize": CARD,
               "sft": {"steps": 150, "accuracy_check": 0.53, "stopped": "accuracy"},
               "grpo": {"steps": 80, "final_reward": 0.93, "resumed_from": None,
                        "peak_memory_gib": [1.6, 1.25]}}  # fmt: skip
    for stage, result in results.items():
        (run[stage] / "result.json").write_text(json.dumps(result))
    return run


def sweep_of(count: int, steps: int = 80, **hostile: str) -> dict[str, Any]:
    """Return the inputs of a sweep's page: `count` points over beta and seed.

    All share fetch, and each two grpo's artifact; the last but one has failed and the last is invalid.
    Any text of `hostile` (value, message, command) stands in place of the usual one.
    """
    points, manifests, rows, trained = [], {}, {}, metrics(steps)
    for i in range(count):
        state = {count - 1: "invalid", count - 2: "failed"}.get(i, "finished") if count > 2 else "finished"
        artifacts = {"fetch": "fetch/aa", "grpo": f"grpo/b{i // 2}", "report": f"report/c{i}"}
        accuracy = 0.5 + (i * 7 % count) / (2 * count)
        points.append(
            SweepPoint(
                number=i,
                state=state,
                message=hostile.get("message", "reward ran away") if state != "finished" else "",
                chosen={"train.beta": hostile.get("value", f"0.0{i // 2}"), "report.title": f"run_{i}"},
                command=hostile.get("command", f"grpoflow run report.title=run_{i}"),
                result={"accuracy_sft": 0.4, "accuracy_grpo": accuracy, "prompts": 100, "gain": 0}
                if state == "finished"
                else {},
                artifacts={} if state == "invalid" else artifacts,
            )
        )
        for stage, name in artifacts.items():
            if state == "finished":
                begun, ended = SPANS[stage] if stage in SPANS else (340 + i, 340.5 + i)
                manifests[name] = {"started": START + begun, "ended": START + ended}
        rows[f"grpo/b{i // 2}"] = [{**row, "reward": row["reward"] + 0.05 * i} for row in trained]
    return {
        "title": "0123abcd", "command": hostile.get("command", "grpoflow sweep seed=0,1"),
        "written": START,
        "sweep_points": points, "manifests": manifests, "metrics": rows,
    }  # fmt: skip


def with_a_stopped_point(inputs: dict[str, Any], number: int = 5) -> dict[str, Any]:
    """Return the inputs of a sweep's page in which a point was stopped early after step 10."""
    rung = {"number": 2, "step": 10, "accuracy": 0.125, "needed": 0.5, "compared": 6}
    points = list(inputs["sweep_points"])
    points[number] = replace(points[number], state="stopped early", message="rung 2", result={}, rung=rung)
    return {**inputs, "sweep_points": points}


def compared(count: int, steps: int = 80, **hostile: str) -> list[ComparedRun]:
    """Return `count` runs that differ in seed; `hostile` replaces label and command."""
    sweep = sweep_of(2 * count, steps)
    return [
        ComparedRun(
            label=f"{hostile.get('label', 'run')} {i}",
            state=point.state,
            failed_stage="",
            started=START,
            duration="3 min",
            command=hostile.get("command", point.command),
            result=point.result,
            report="../../report/c0/index.html",
            config={**CONFIG, "seed": i, "note": hostile.get("label", "same")},
            metrics=sweep["metrics"][f"grpo/b{i}"],
        )
        for i, point in enumerate(sweep["sweep_points"][:count])
    ]
