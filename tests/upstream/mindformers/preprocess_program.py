"""Records of mindformers' own preprocessing, in its interpreter: one JSON list of input_ids per record.

Arguments: checkout, directory with vocab.json and merges.txt, row length. Standard input: JSON with kind
(wiki, wikipedia or qa), source, and repeat or samples_num.
"""

import contextlib
import importlib
import json
import sys
from pathlib import Path


def main(home, vocabulary, length):
    sys.path[:0] = [home, str(Path(home) / "mindformers/tools/dataset_preprocess/llama")]
    request = json.load(sys.stdin)
    kind, source, number = request["kind"], request["source"], request["number"]
    with contextlib.redirect_stdout(sys.stderr):
        tokenizer = importlib.import_module("research.qwen2.qwen2_tokenizer").Qwen2Tokenizer(
            f"{vocabulary}/vocab.json", f"{vocabulary}/merges.txt", add_bos_token=False, add_eos_token=False
        )
        if kind == "wikipedia":  # its own script takes SentencePiece models only
            llama = importlib.import_module("llama_preprocess")
            records = list(llama.tokenize_wikipedia(tokenizer, source, length + 1, number))
        else:
            qwen = importlib.import_module("research.qwen2.qwen2_preprocess")
            more = (number,) if kind == "wiki" else ()
            records = list(getattr(qwen, f"tokenize_{kind}")(tokenizer, source, length + 1, *more))
    print(json.dumps([record["input_ids"].tolist() for record in records]))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
