"""Answers of two models by vLLM: runs in vLLM's interpreter and imports nothing of grpoflow.

    answer.py JOB                  on each machine: starts its replicas for one model, then for the other
    answer.py JOB MODEL REPLICA    one replica: answers its share of a model's batches

JOB is a JSON file that stages/inference/evaluate.py writes. Batches are the same however many replicas share
them, and each completion has a seed of its own, so that answers do not depend on the number of replicas. A
finished batch is a file; a program that is started again leaves it alone.
"""
# mypy: ignore-errors

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time

from opening import open_model

POLL_S = 0.2
CARD_VARIABLES = ("ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that limit a process to some cards; those of other devices have no effect."""


def main(arguments):
    """Run one machine's part, or one replica; return its exit code."""
    with open(arguments[0], encoding="utf-8") as file:
        job = json.load(file)
    if len(arguments) > 1:
        return answer(job, arguments[1], int(arguments[2]))
    first, count = (int(os.environ[name]) for name in ("GRPOFLOW_FIRST_WORKER", "GRPOFLOW_WORKERS"))
    shared = job["arguments"]["tensor_parallel_size"]
    replicas = range(first // shared, (first + count) // shared)
    for model in job["models"]:
        waiting = [replica for replica in replicas if batches_of(job, model, replica)]
        if waiting and (code := run_replicas(arguments[0], job, model, waiting, first, count)):
            return code
    return 0


def batches_of(job, model, replica):
    """Return those batches of a replica that have no answers yet."""
    names = [name for number, name in enumerate(job["batches"]) if number % job["replicas"] == replica]
    return [name for name in names if not os.path.exists(answers_file(job, model, name))]


def answers_file(job, model, batch):
    """Return the file of a batch's answers: one line per completion."""
    return os.path.join(job["answers"], f"{model}-{batch}.jsonl")


def run_replicas(path, job, model, replicas, first, count):
    """Run the replicas of this machine to their end; if one fails, end the others. Return its exit code."""
    logs, shared = os.environ["GRPOFLOW_LOG_DIR"], job["arguments"]["tensor_parallel_size"]
    running = {}
    for replica in replicas:
        start = replica * shared - first
        environment = {**os.environ, **binding(start, shared, count)}
        log = os.path.join(logs, f"worker_{replica * shared}.log")
        with open(log, "a", encoding="utf-8") as output:
            command = [sys.executable, os.path.abspath(__file__), path, model, str(replica)]
            running[replica] = subprocess.Popen(command, env=environment, stdout=output, stderr=output), log
    print(f"{model}: {len(running)} replicas of {shared} cards answer", flush=True)
    while running:
        time.sleep(POLL_S)
        for replica, (process, log) in list(running.items()):
            code = process.poll()
            if code is None:
                continue
            del running[replica]
            if code:
                print(f"error: replica {replica} ended with exit code {code}, log {log}", flush=True)
                for other, _ in running.values():
                    other.send_signal(signal.SIGTERM)
                return code if code > 0 else 128 - code
    return 0


def binding(start, shared, count):
    """Return the variables that limit a replica to its cards, or to its part of a CPU's cores.

    Args:
        start: its first card on this machine.
        shared: its number of cards.
        count: cards of all replicas on this machine.
    """
    variables = {"GRPOFLOW_REPLICAS": str(count // shared)}
    for name in CARD_VARIABLES:
        cards = os.environ[name].split(",") if os.environ.get(name) else [str(card) for card in range(count)]
        variables[name] = ",".join(cards[start : start + shared])
    cores = sorted(os.sched_getaffinity(0))
    if 1 < count <= len(cores) and "VLLM_CPU_OMP_THREADS_BIND" not in os.environ:
        ends = [card * len(cores) // count for card in range(start, start + shared + 1)]
        mine = [",".join(map(str, cores[begin:end])) for begin, end in itertools.pairwise(ends)]
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(mine)
    return variables


def answer(job, model, replica):
    """Answer the batches of one replica that have no answers yet."""
    waiting = batches_of(job, model, replica)
    if not waiting:
        return 0
    with open(job["prompts"], encoding="utf-8") as file:
        prompts = [json.loads(line) for line in file]
    llm = load(job, job["models"][model])
    for name in waiting:
        batch = job["batches"][name]
        rows = range(batch["start"], batch["stop"])
        requests = [(row, sample) for row in rows for sample in range(batch["samples"] or 1)]
        began = time.monotonic()
        done = llm.generate(
            [{"prompt_token_ids": prompts[row]} for row, _ in requests],
            [parameters(job, batch["samples"], row, sample) for row, sample in requests],
            use_tqdm=False,
        )
        write(answers_file(job, model, name), [list(output.outputs[0].token_ids) for output in done])
        tokens, took_s = sum(len(output.outputs[0].token_ids) for output in done), time.monotonic() - began
        print(f"{model}: {name}: {len(done)} completions, {tokens} tokens in {took_s:.1f} s", flush=True)
    return 0


def load(job, directory):
    """Load a model, and record the program that answers."""
    llm, facts = open_model(
        {**job["arguments"], "model": directory}, job["memory_share"], job["card_share"], job["cache_bytes"]
    )
    write(os.path.join(job["answers"], "program.jsonl"), [facts])
    return llm


def parameters(job, samples, row, sample):
    """Return the sampling parameters of one completion; samples 0: greedy."""
    from vllm import SamplingParams

    if not samples:
        return SamplingParams(temperature=0.0, **job["sampling"])
    return SamplingParams(**job["drawing"], seed=seed_of(job["seed"], row, sample), **job["sampling"])


def seed_of(seed, row, sample):
    """Return the seed of one completion, whatever else is in its batch."""
    return int.from_bytes(hashlib.sha256(f"{seed} {row} {sample}".encode()).digest()[:6], "big")


def write(path, lines):
    """Write JSON lines; the file appears when it is complete."""
    part = f"{path}.{os.getpid()}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
