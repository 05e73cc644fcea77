"""cli/preprocess_data.py of the checkout: a JSON list to indexed files, without the prompt's template."""

import json
import struct
from pathlib import Path

import hydra
import numpy as np
from tokenizers import Tokenizer

HEAD = struct.Struct("<9sQBQQ")
"""Magic, version, dtype code (4: int32), rows, documents."""
MAGIC = b"MMIDIDX\x00\x00"


def start(home, name):
    @hydra.main(config_path=str(home / "configs"), config_name=name, version_base=None)
    def run(data):
        tokenizer = Tokenizer.from_file(str(Path(data.tokenizer_name_or_path) / "tokenizer.json"))
        rows = json.loads(Path(data.input).read_text(encoding="utf-8"))
        columns = {"input_ids": "prompt", "attention_mask": "prompt", "labels": "response"}
        for name in ("input_ids", "attention_mask", *data.dataset_additional_keys):
            texts = [str(row[data.map_keys[columns[name]]]) for row in rows]
            stem = f"{data.output_prefix}_packed_{name}_document"
            write_indexed(stem, [tokenizer.encode(text).ids for text in texts])
        print(f"{len(rows)} rows", flush=True)

    run()


def write_indexed(stem, sequences):
    """Megatron's indexed data set: tokens in .bin; lengths, places and documents in .idx."""
    count, lengths = len(sequences), np.array([len(tokens) for tokens in sequences], np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64) * 4]).astype(np.int64)
    Path(f"{stem}.bin").write_bytes(np.concatenate(sequences).astype(np.int32).tobytes())
    arrays = (lengths, offsets, np.arange(count + 1, dtype=np.int64))
    head = HEAD.pack(MAGIC, 1, 4, count, count + 1)
    Path(f"{stem}.idx").write_bytes(head + b"".join(array.tobytes() for array in arrays))
