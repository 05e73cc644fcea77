"""cli/preprocess_data.py of both checkouts: a JSON list to indexed files, without the prompt's template."""

import json
import os
import struct
from pathlib import Path

import hydra
import numpy as np
from standin_config import is_newer, require, section
from tokenizers import Tokenizer

HEAD = struct.Struct("<9sQBQQ")
"""Magic, version, dtype code (4: int32), rows, documents."""
MAGIC = b"MMIDIDX\x00\x00"
KEYS = (
    "input", "output_prefix", "tokenizer_name_or_path", "tokenizer_type", "handler_name", "map_keys",
    "workers", "log_interval", "prompt_type", "cache_dir", "dataset_additional_keys",
)  # fmt: skip


def start(home, name):
    @hydra.main(config_path=str(home / "configs"), config_name=name, version_base=None)
    def run(config):
        preprocess(section("the data set", config, dict.fromkeys(KEYS)), home)

    run()


def preprocess(data, home):
    paths = {}
    for key in ("input", "output_prefix", "tokenizer_name_or_path"):
        path = os.path.normpath(os.path.join(home, getattr(data, key)))
        inside = path.startswith(str(home)) or os.path.isabs(getattr(data, key))
        require(inside or not is_newer(home), f"{key}={path} is outside {home}")
        paths[key] = Path(path)
    prefix, directory = paths["output_prefix"], paths["tokenizer_name_or_path"]
    require(prefix.parent.is_dir(), f"{prefix.parent} is not a directory")
    require(data.handler_name == "R1AlpacaStyleInstructionHandler", f"handler_name={data.handler_name}")
    templates = json.loads((home / "configs" / "model" / "templates.json").read_text(encoding="utf-8"))
    require(data.prompt_type in {item["name"] for item in templates}, f"prompt_type={data.prompt_type}")
    require(set(data.map_keys) <= {"prompt", "query", "response", "system"}, f"map_keys={data.map_keys}")
    require((directory / "tokenizer_config.json").is_file(), "there is no tokenizer")
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    rows = json.loads(paths["input"].read_text(encoding="utf-8"))
    columns = {"input_ids": "prompt", "attention_mask": "prompt", "labels": "response"}
    for name in ("input_ids", "attention_mask", *data.dataset_additional_keys):
        texts = [str(row[data.map_keys[columns[name]]]) for row in rows]
        sequences = [np.array(tokenizer.encode(text).ids, np.int32) for text in texts]
        write_indexed(f"{prefix}_packed_{name}_document", sequences)
    print(f"{len(rows)} rows", flush=True)


def write_indexed(stem, sequences):
    """Megatron's indexed data set: tokens in .bin; lengths, places and documents in .idx."""
    count, lengths = len(sequences), np.array([len(tokens) for tokens in sequences], np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64) * 4]).astype(np.int64)
    Path(f"{stem}.bin").write_bytes(np.concatenate(sequences).tobytes())
    arrays = (lengths, offsets, np.arange(count + 1, dtype=np.int64))
    head = HEAD.pack(MAGIC, 1, 4, count, count + 1)
    Path(f"{stem}.idx").write_bytes(head + b"".join(array.tobytes() for array in arrays))


def check_rows(prefix, additional):
    """Require complete files of equally many rows."""
    counts = set()
    for key in ("input_ids", "attention_mask", *additional):
        stem = f"{prefix}_packed_{key}_document"
        index = Path(f"{stem}.idx").read_bytes()
        magic, _, kind, count, _ = HEAD.unpack_from(index)
        tokens = np.frombuffer(index, np.int32, count, HEAD.size).sum()
        is_complete = Path(f"{stem}.bin").stat().st_size == 4 * tokens
        require(magic == MAGIC and kind == 4 and is_complete, f"{stem}: cut off, or not an index")
        counts.add(count)
    require(len(counts) == 1 and 0 not in counts, f"rows {counts}")
