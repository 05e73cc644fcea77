"""Greedy answers through a model directory's chat template: `ask.py` with a JSON request on stdin.

Runs in the interpreter of the program that answers, vllm or transformers, and imports nothing of grpoflow.
The last line that it prints is {"answers": [...], "version": ..., "dtype": ...}. The request has program,
directory, questions, dtype, max_tokens, min_tokens, repetition_penalty, max_model_len, memory_share,
card_share and cache_bytes.
"""
# mypy: ignore-errors

import json
import os
import sys

BATCH = 64
"""Questions that transformers answers at once."""


def main():
    """Answer a request."""
    request = json.load(sys.stdin)
    ask = {"vllm": ask_vllm, "transformers": ask_transformers}[request["program"]]
    print(json.dumps(ask(request)))


def ask_vllm(request):
    """Answer by vLLM, whose template and end ids are the directory's."""
    from opening import open_model

    arguments = {"model": request["directory"], "dtype": request["dtype"], "seed": 0, "max_num_seqs": BATCH}
    arguments["max_model_len"] = request["max_model_len"]
    llm, facts = open_model(arguments, request["memory_share"], request["card_share"], request["cache_bytes"])
    from vllm import SamplingParams

    greedy = SamplingParams(
        temperature=0.0, repetition_penalty=request["repetition_penalty"],
        min_tokens=request["min_tokens"], max_tokens=request["max_tokens"],
    )  # fmt: skip
    turns = [[{"role": "user", "content": question}] for question in request["questions"]]
    answers = [output.outputs[0].text for output in llm.chat(turns, greedy, use_tqdm=False)]
    return {"answers": answers, "version": facts["version"], "dtype": facts["dtype"]}


def ask_transformers(request):
    """Answer by transformers on this machine's CPU."""
    import torch
    import transformers

    directory, dtype = request["directory"], getattr(torch, request["dtype"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        directory, local_files_only=True, padding_side="left"
    )
    load = transformers.AutoModelForCausalLM.from_pretrained
    key = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"
    model = load(directory, local_files_only=True, **{key: dtype}).eval()
    questions, has_template = request["questions"], tokenizer.chat_template is not None
    if has_template:
        turns = [[{"role": "user", "content": question}] for question in questions]
        questions = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    answers = []
    for start in range(0, len(questions), BATCH):
        batch = tokenizer(
            questions[start : start + BATCH], add_special_tokens=not has_template, padding=True,
            return_token_type_ids=False, return_tensors="pt",
        )  # fmt: skip
        with torch.inference_mode():
            done = model.generate(
                **batch, do_sample=False, temperature=None, top_p=None, top_k=None, min_p=None,
                repetition_penalty=request["repetition_penalty"], max_new_tokens=request["max_tokens"],
            )  # fmt: skip
        answers += tokenizer.batch_decode(done[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    name = str(next(model.parameters()).dtype).removeprefix("torch.")
    return {"answers": answers, "version": transformers.__version__, "dtype": name}


if __name__ == "__main__":  # vLLM may start processes that import this file
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
    main()
