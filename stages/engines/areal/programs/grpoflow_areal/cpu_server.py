"""Inference server for AReaL on a CPU: the part of vLLM's HTTP interface that AReaL uses, with transformers.

Weights come from disk (actor.weight_update_mode=disk). Generation stops between two tokens when it is paused
or when new weights arrive, and answers finish_reason "abort" with what it has; AReaL then asks for the rest
(infra/remote_inf_engine.py, agenerate). A sample depends on the seed, the weights, the prompt and how often
they were asked for it, but not on the order in which requests arrive, so that a resumed run samples what it
would have sampled. The file GRPOFLOW_AREAL_SERVER_LOG, if it is set, gets a JSON line for each load, with the
digest of the weights, and for each answer.
Source: AReaL 1.0.4, engine/vllm_remote.py, engine/vllm_ext/areal_vllm_server.py.
"""
# mypy: ignore-errors

import argparse
import contextlib
import hashlib
import json
import os
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

LOG_VARIABLE = "GRPOFLOW_AREAL_SERVER_LOG"
PAUSED_S = 0.1
"""Time after which a request during a pause is aborted, so that AReaL does not ask without a break."""


def digest(model):
    """Return a digest of all weights: names in order, bytes in float32; without a tied lm_head."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        total.update(name.encode())
        total.update(tensor.detach().float().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


class Generator:
    """One model, which generates for one request at a time, token by token."""

    def __init__(self, path, seed):
        self._seed, self._loads, self._digest = seed, 0, ""
        self._model_lock = threading.Lock()
        self._running = threading.Event()
        self._running.set()
        self._pauses, self._asked = 0, Counter()
        # a vocabulary that is padded to a round size has ids that no text has
        self._vocabulary = len(AutoTokenizer.from_pretrained(path, local_files_only=True))
        self.load(path)

    def load(self, path):
        """Replace the weights."""
        kwargs = {"local_files_only": True, "dtype": torch.float32, "attn_implementation": "sdpa"}
        model = AutoModelForCausalLM.from_pretrained(path, **kwargs).eval()
        found = digest(model)
        with self._model_lock:
            self._model, self._digest = model, found
            self._loads += 1
            self._asked.clear()
        self._log({"event": "load", "load": self._loads, "path": str(path), "digest": found})

    def pause(self):
        """Abort what is being generated, and new requests."""
        self._running.clear()
        with self._model_lock:  # no token is made after the answer
            self._pauses += 1
        self._log({"event": "pause"})

    def resume(self):
        """Let requests be answered."""
        self._running.set()
        self._log({"event": "resume"})

    @torch.no_grad()
    def generate(self, request):
        """Return vLLM's answer to a completion request: token ids with log-probabilities."""
        prompt, temperature = list(request["prompt"]), float(request.get("temperature", 1.0))
        key = hashlib.sha256(json.dumps(prompt).encode()).hexdigest()
        with self._model_lock:
            paused, load, pauses = not self._running.is_set(), self._loads, self._pauses
            self._asked[key] += not paused
            name = f"{self._seed} {self._digest} {key} {self._asked[key]}"
        if paused:  # AReaL takes what it gets before an update has ended for the work of the old weights
            time.sleep(PAUSED_S)
            return answer([], [], "abort")
        generator = torch.Generator().manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:15], 16))
        stops = set() if request.get("ignore_eos") else set(request.get("stop_token_ids") or ())
        tokens, logprobs, reason, cache = [], [], "length", None
        ids = torch.tensor([prompt])
        while len(tokens) < request["max_tokens"]:
            with self._model_lock:
                if self._pauses != pauses or self._loads != load:
                    reason = "abort"
                    break
                out = self._model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logits = out.logits[0, -1, : self._vocabulary].float() / (temperature or 1.0)
            token, logprob = sample(logits, temperature, request, generator)
            tokens.append(token)
            logprobs.append(logprob)
            ids = torch.tensor([[token]])
            if token in stops:
                reason = "stop"
                break
        self._log({"event": "generate", "load": load, "reason": reason, "tokens": len(tokens)})
        return answer(tokens, logprobs, reason)

    def _log(self, event):
        if path := os.environ.get(LOG_VARIABLE):
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")


def answer(tokens, logprobs, reason):
    """Return a completion as vLLM does with return_tokens_as_token_ids."""
    named = [f"token_id:{token}" for token in tokens]
    choice = {"index": 0, "text": "", "finish_reason": reason}
    return {"choices": [{**choice, "logprobs": {"tokens": named, "token_logprobs": logprobs}}]}


def sample(logits, temperature, request, generator):
    """Return a token and its log-probability in the full distribution, as vLLM's raw logprobs are.

    Args:
        logits: divided by the temperature, [vocabulary].
        temperature: 0 for the likeliest token.
        request: top_k and top_p, as in vLLM's interface.
        generator: source of random numbers.
    """
    logprobs = torch.log_softmax(logits, -1)
    if temperature == 0:
        token = int(logprobs.argmax())
        return token, float(logprobs[token])
    order = logprobs.sort(descending=True)
    kept = order.values.exp()
    top_k = int(request.get("top_k") or -1)
    if 0 < top_k < len(kept):
        kept[top_k:] = 0
    top_p = float(request.get("top_p") or 1.0)
    if top_p < 1:
        before = kept.cumsum(-1) - kept
        kept[before >= top_p * kept.sum()] = 0
    token = int(order.indices[torch.multinomial(kept, 1, generator=generator)])
    return token, float(logprobs[token])


class Handler(BaseHTTPRequestHandler):
    """The addresses that AReaL asks."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answer health checks."""
        self._answer({}, self.path.partition("?")[0])

    def do_POST(self):
        """Answer requests with a JSON body."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(json.loads(body or b"{}"), self.path.partition("?")[0])

    def _answer(self, request, path):
        generator, ok = self.server.generator, {"success": True, "message": ""}
        try:
            if path in ("/health", "/v1/models"):
                self._reply({"status": "ok"})
            elif path == "/v1/completions":
                self._reply(generator.generate(request))
            elif path == "/areal_update_weights":
                generator.load(request["model_path"])
                self._reply(ok)
            elif path == "/areal_pause_generation":
                generator.pause()
                self._reply(ok)
            elif path == "/areal_continue_generation":
                generator.resume()
                self._reply(ok)
            else:
                self._reply({"error": f"the server for CPUs has no {path}"}, 404)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            self._reply({"success": False, "message": repr(error)}, 400)

    def _reply(self, answer, status=200):
        data = json.dumps(answer).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client is gone
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *arguments):
        """Log nothing: there is a request for every completion."""


class Server(ThreadingHTTPServer):
    """One thread per request; the model works for one at a time."""

    daemon_threads = True
    request_queue_size = 256


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    server = Server((arguments.host, arguments.port), Handler)
    server.generator = Generator(arguments.model, arguments.seed)
    server.serve_forever()
