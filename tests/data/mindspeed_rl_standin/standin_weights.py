"""Tensors as bits, and the two layouts of Qwen2.5: Hugging Face's names, and Megatron's, cut in parts."""

import json
from pathlib import Path

import numpy as np

BITS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}
KINDS = {"fp16": "F16", "bf16": "BF16", "fp32": "F32"}
MODEL, OPTIMIZER, TRACKER = "model_optim_rng.pt", "distrib_optim.pt", "latest_checkpointed_iteration.txt"


def read(path):
    """A safetensors file: its kind and {name: bits}."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        data = file.read()
    kinds = {entry["dtype"] for entry in header.values()}
    assert len(kinds) == 1 and kinds <= set(BITS), kinds
    (kind,) = kinds
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if end > len(data):
            raise ValueError(f"{path}: cut off")
        tensors[name] = np.frombuffer(data[begin:end], BITS[kind]).reshape(entry["shape"])
    return kind, tensors


def write(path, kind, tensors):
    path.parent.mkdir(parents=True, exist_ok=True)
    header, offset = {}, 0
    for name, value in tensors.items():
        span = [offset, offset + value.nbytes]
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": span}
        offset = span[1]
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


def cast(bits, kind, wanted):
    """Other bits for the same numbers; BF16 rounds to nearest, ties to even."""
    if kind == wanted:
        return bits
    if kind == "BF16":
        single = (bits.astype(np.uint32) << 16).view(np.float32)
    else:
        single = bits.view(np.float32 if kind == "F32" else np.float16).astype(np.float32)
    if wanted == "BF16":
        wide = single.view(np.uint32)
        return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    return single.view(np.uint32) if wanted == "F32" else single.astype(np.float16).view(np.uint16)


def read_hf(directory):
    directory = Path(directory)
    files, kinds, tensors = sorted(directory.glob("*.safetensors")), set(), {}
    if not files:
        raise FileNotFoundError(f"{directory}: no safetensors")
    for file in files:
        kind, part = read(file)
        kinds.add(kind)
        tensors |= part
    assert len(kinds) == 1, kinds
    return kinds.pop(), tensors, json.loads((directory / "config.json").read_text())


class Shape:
    """How a model is cut."""

    def __init__(self, layers, heads, groups, tensor, pipeline, counts=None):
        self.layers, self.heads, self.groups, self.tensor, self.pipeline = (
            layers,
            heads,
            groups,
            tensor,
            pipeline,
        )
        self.counts = [int(n) for n in counts.split(",")] if counts else [layers // pipeline] * pipeline
        assert len(self.counts) == pipeline and sum(self.counts) == layers, vars(self)
        assert heads % tensor == 0 and groups % tensor == 0, vars(self)

    def part(self, tensor, pipeline):
        return f"mp_rank_{tensor:02d}" + (f"_{pipeline:03d}" if self.pipeline > 1 else "")

    def stages(self):
        """The layers of each pipeline stage."""
        ends = np.cumsum(self.counts)
        return [range(end - count, end) for end, count in zip(ends, self.counts, strict=True)]


def fuse(q, k, v, groups):
    """Query group by group: its queries, its key, its value."""
    q, k, v = (value.reshape(groups, -1, *value.shape[1:]) for value in (q, k, v))
    fused = np.concatenate([q, k, v], axis=1)
    return fused.reshape(-1, *fused.shape[2:])


def unfuse(fused, heads, groups):
    head_rows = fused.shape[0] // (heads + 2 * groups)
    grouped = fused.reshape(groups, -1, *fused.shape[1:])
    q, k, v = np.split(grouped, [heads // groups * head_rows, (heads // groups + 1) * head_rows], axis=1)
    return [value.reshape(-1, *fused.shape[1:]) for value in (q, k, v)]


PLAIN = (
    ("input_layernorm.weight", "input_layernorm.weight", None),
    ("pre_mlp_layernorm.weight", "post_attention_layernorm.weight", None),
    ("self_attention.linear_proj.weight", "self_attn.o_proj.weight", 1),
    ("mlp.linear_fc2.weight", "mlp.down_proj.weight", 1),
)


def cut(value, axis, part, parts):
    return value if axis is None else np.split(value, parts, axis)[part]


def to_mcore(hf, shape):
    """{part's directory: its tensors}."""
    parts = {}
    for stage, layers in enumerate(shape.stages()):
        for rank in range(shape.tensor):
            parts[shape.part(rank, stage)] = _part(hf, shape, stage, layers, rank)
    return parts


def _part(hf, shape, stage, layers, rank):
    mine = {}
    if stage == 0:
        mine["embedding.word_embeddings.weight"] = cut(hf["model.embed_tokens.weight"], 0, rank, shape.tensor)
    for local, layer in enumerate(layers):
        theirs, ours = f"model.layers.{layer}.", f"decoder.layers.{local}."
        for name, source, axis in PLAIN:
            mine[ours + name] = cut(hf[theirs + source], axis, rank, shape.tensor)
        for kind in ("weight", "bias"):
            q, k, v = (hf[f"{theirs}self_attn.{x}_proj.{kind}"] for x in "qkv")
            fused = fuse(q, k, v, shape.groups)
            mine[f"{ours}self_attention.linear_qkv.{kind}"] = cut(fused, 0, rank, shape.tensor)
        pair = [cut(hf[f"{theirs}mlp.{x}_proj.weight"], 0, rank, shape.tensor) for x in ("gate", "up")]
        mine[ours + "mlp.linear_fc1.weight"] = np.concatenate(pair)
    if stage == shape.pipeline - 1:
        mine["decoder.final_layernorm.weight"] = hf["model.norm.weight"]
        head = hf.get("lm_head.weight", hf["model.embed_tokens.weight"] if shape.pipeline > 1 else None)
        if head is not None:  # tied embeddings lie on both ends of a pipeline
            mine["output_layer.weight"] = cut(head, 0, rank, shape.tensor)
    return mine


def to_hf(parts, shape, tied):
    hf = {}
    for stage, layers in enumerate(shape.stages()):
        ranks = [parts[shape.part(rank, stage)] for rank in range(shape.tensor)]

        def whole(name, axis, ranks=ranks):
            return ranks[0][name] if axis is None else np.concatenate([part[name] for part in ranks], axis)

        if stage == 0:
            hf["model.embed_tokens.weight"] = whole("embedding.word_embeddings.weight", 0)
        for local, layer in enumerate(layers):
            theirs, ours = f"model.layers.{layer}.", f"decoder.layers.{local}."
            for name, target, axis in PLAIN:
                hf[theirs + target] = whole(ours + name, axis)
            for kind in ("weight", "bias"):
                fused = whole(f"{ours}self_attention.linear_qkv.{kind}", 0)
                for x, value in zip("qkv", unfuse(fused, shape.heads, shape.groups), strict=True):
                    hf[f"{theirs}self_attn.{x}_proj.{kind}"] = value
            halves = [np.split(part[ours + "mlp.linear_fc1.weight"], 2) for part in ranks]
            hf[theirs + "mlp.gate_proj.weight"] = np.concatenate([gate for gate, _ in halves])
            hf[theirs + "mlp.up_proj.weight"] = np.concatenate([up for _, up in halves])
        if stage == shape.pipeline - 1:
            hf["model.norm.weight"] = whole("decoder.final_layernorm.weight", None)
            if not tied:
                hf["lm_head.weight"] = whole("output_layer.weight", 0)
    return hf


def latest(directory):
    """The directory of the newest checkpoint and its iteration, by the file that names it."""
    tracker = Path(directory) / TRACKER
    if not tracker.is_file():
        raise FileNotFoundError(f"{tracker}: without it training would start from random weights")
    iteration = int(tracker.read_text())
    return Path(directory) / f"iter_{iteration:07d}", iteration
