"""The layouts of a run's roles, with the bytes and the peak memory of each rank."""

import re
from pathlib import Path

from stages.base.layout import ROLES
from stages.report.artifacts import Run, mapping
from stages.report.layout_picture import Picture, picture
from stages.report.text import number, size


def pictures(run: Run) -> list[Picture]:
    """Return a picture of each role that has a layout; note those that cannot be drawn."""
    layout, layers = run.section("layout"), number(run.section("model").get("num_hidden_layers"))
    results = []
    for role in ROLES:
        weight_bytes = {rank: size(count) for rank, count in rank_bytes(run, role).items()}
        peaks = rank_peaks(run) if role == "train" else {}
        labels = {rank: f"peak {peak:.2f} GiB" for rank, peak in peaks.items()}
        values = mapping(layout.get(role))
        drawn = picture(role, values, None if layers is None else int(layers), weight_bytes, labels)
        if drawn:
            results.append(drawn)
        elif layout.get(role):
            run.notes.append(f"layout.{role}: not a layout that can be drawn.")
    return results


def rank_bytes(run: Run, role: str) -> dict[int, int]:
    """Return rank -> bytes of its weight files, from the last stage that wrote the role's shards."""
    for stage in ("grpo", "sft", "split"):
        sizes: dict[int, int] = {}
        for path, entry in mapping(run.manifests.get(stage, {}).get("files")).items():
            match = re.fullmatch(rf"{role}/rank_(\d{{1,4}})/[^/]+\.(safetensors|ckpt)", Path(path).as_posix())
            count = number(mapping(entry).get("size"))
            if match and count is not None:
                sizes[int(match[1])] = sizes.get(int(match[1]), 0) + int(count)
        if sizes:
            return sizes
    return {}


def rank_peaks(run: Run) -> dict[int, float]:
    """Return rank -> peak memory while training, GiB; {} if it was not recorded."""
    values = run.result("grpo").get("peak_memory_gib")
    numbered = enumerate(values if isinstance(values, list) else [])
    return {rank: peak for rank, value in numbered if (peak := number(value)) is not None}
