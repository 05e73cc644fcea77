"""cli/preprocess_data.py of both checkouts: a JSON list to indexed files."""

import json
import os
import struct
from pathlib import Path

import numpy as np
from standin_config import Section, require
from tokenizers import Tokenizer

MAGIC, INT32 = b"MMIDIDX\x00\x00", 4


class DataHandlerConfig(Section):
    input = output_prefix = tokenizer_name_or_path = tokenizer_type = handler_name = map_keys = None
    workers = log_interval = prompt_type = cache_dir = None
    dataset_additional_keys = ()


def preprocess(config, home, *, head):
    data = DataHandlerConfig(config)
    for key in ("input", "output_prefix", "tokenizer_name_or_path", "map_keys"):
        require(getattr(data, key) is not None, f"{key} is missing")
    for key in ("input", "output_prefix", "tokenizer_name_or_path"):
        path = os.path.normpath(os.path.join(home, getattr(data, key)))
        inside = path.startswith(str(home)) or os.path.isabs(getattr(data, key))
        require(inside or not head, f"{key}={path} is outside {home}")
        setattr(data, key, Path(path))
    require(data.output_prefix.parent.is_dir(), f"{data.output_prefix.parent} is not a directory")
    require(data.handler_name == "R1AlpacaStyleInstructionHandler", f"handler_name={data.handler_name}")
    templates = json.loads((home / "configs" / "model" / "templates.json").read_text(encoding="utf-8"))
    (template,) = [template for template in templates if template["name"] == data.prompt_type]
    require(set(data.map_keys) <= {"prompt", "query", "response", "system"}, f"map_keys={data.map_keys}")
    require((data.tokenizer_name_or_path / "tokenizer_config.json").is_file(), "there is no tokenizer")
    tokenizer = Tokenizer.from_file(str(data.tokenizer_name_or_path / "tokenizer.json"))
    rows = json.loads(data.input.read_text(encoding="utf-8"))
    columns = {"input_ids": [], "attention_mask": [], **{key: [] for key in data.dataset_additional_keys}}
    for row in rows:
        pieces = fill(template, str(row[data.map_keys["prompt"]]))
        prompt = [token for piece in pieces for token in ids(tokenizer, piece)]
        columns["input_ids"].append(prompt)
        columns["attention_mask"].append([1] * len(prompt))
        for key in data.dataset_additional_keys:
            column = data.map_keys["response"] if key == "labels" else key
            columns[key].append(ids(tokenizer, str(row[column])))
    for key, values in columns.items():
        stem = f"{data.output_prefix}_packed_{key}_document"
        write_indexed(stem, [np.array(value, np.int32) for value in values])
    print(f"{len(rows)} rows", flush=True)


def fill(template, question):
    """Return the text that the policy sees, in the pieces that are encoded separately."""
    pieces = [("format_system", template.get("default_system")), ("format_user", question)]
    thought = ["<think>\n\n</think>\n\n"] if template.get("template_class") == "ReasoningTemplate" else []
    return [
        slot.replace("{{content}}", content)
        for part, content in pieces
        if content is not None
        for slot in template[part]["slots"]
    ] + thought


def ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def write_indexed(stem, sequences):
    """Megatron's indexed data set: tokens in .bin; lengths, places and documents in .idx."""
    lengths = np.array([len(tokens) for tokens in sequences], np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64) * 4]).astype(np.int64)
    count = len(sequences)
    Path(f"{stem}.bin").write_bytes(np.concatenate(sequences).tobytes())
    with Path(f"{stem}.idx").open("wb") as file:
        file.write(MAGIC + struct.pack("<QBQQ", 1, INT32, count, count + 1))
        file.write(lengths.tobytes() + offsets.tobytes() + np.arange(count + 1, dtype=np.int64).tobytes())


def rows_of(prefix, additional):
    """Number of rows, after a look at all files of a data set."""
    lengths = {}
    for key in ("input_ids", "attention_mask", *additional):
        stem = f"{prefix}_packed_{key}_document"
        index = Path(f"{stem}.idx").read_bytes()
        require(index.startswith(MAGIC), f"{stem}.idx: not an index")
        _, kind, count, _ = struct.unpack_from("<QBQQ", index, len(MAGIC))
        tokens = np.frombuffer(index, np.int32, count, len(MAGIC) + struct.calcsize("<QBQQ")).sum()
        require(kind == INT32 and Path(f"{stem}.bin").stat().st_size == 4 * tokens, f"{stem}: cut off")
        lengths[key] = count
    require(len(set(lengths.values())) == 1 and lengths["input_ids"] > 0, f"rows {lengths}")
    return lengths["input_ids"]
