"""A rollout with transformers: an actor that answers requests, and the sender of weights in each worker."""
# mypy: ignore-errors

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import ray
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from grpoflow_verl_cpu.agent_loops import IDENTITY
from grpoflow_verl_cpu.sampling import Settings, make_generator, sample_block


class Server:
    """The model of one replica, an asynchronous Ray actor.

    The first request for a prompt generates a block: the completions of rollout.n positions of the group. The
    other requests of the block get theirs from the same result, which is dropped when the weights change.
    """

    def __init__(self, config, model_path):
        dtype = getattr(torch, config.dtype)
        self._config = config
        self._model = AutoModelForCausalLM.from_pretrained(model_path, dtype=dtype).eval()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        self._num_tokens = len(tokenizer)
        self._stop_tokens = frozenset() if config.ignore_eos else _stop_tokens(self._model, tokenizer)
        self._thread = ThreadPoolExecutor(1)  # blocks and new weights are processed one after another
        self._blocks = {}
        self._step = None

    async def generate(self, request_id, prompt_ids, sampling_params, **kwargs):
        """Return the completion of one request of verl/workers/rollout/llm_server.py."""
        if any(kwargs.get(name) for name in ("image_data", "video_data", "audio_data")):
            raise ValueError("engine.device=cpu supports text only")
        if IDENTITY not in sampling_params:
            key = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
            raise ValueError(f"the sample has no identity: set {key} to grpoflow_verl_cpu/agent_loops.yaml")
        (index, position), settings = sampling_params[IDENTITY], self._settings(prompt_ids, sampling_params)
        size = self._config.n if settings.temperature > 0 else 1
        first = position - position % size
        key = (index, first, tuple(prompt_ids), settings)
        if key not in self._blocks:
            identities = [(index, each) for each in range(first, first + size)]
            work = (self._thread, self._generate, list(prompt_ids), identities, settings)
            self._blocks[key] = asyncio.get_running_loop().run_in_executor(*work)
        tokens, logprobs = (await self._blocks[key])[position - first]
        step = {"global_steps": self._step}
        return TokenOutput(token_ids=tokens, log_probs=logprobs, stop_reason="completed", extra_fields=step)

    def _settings(self, prompt, parameters):
        """Return the settings of a request; lengths are limited as in vllm_async_server.py."""
        if parameters.get("repetition_penalty", 1.0) != 1.0:
            raise ValueError("repetition_penalty must be 1 with engine.device=cpu")
        config = self._config
        limit = min(config.response_length, config.prompt_length + config.response_length - len(prompt))
        requested = parameters.get("max_tokens") or parameters.get("max_new_tokens") or limit
        return Settings(
            temperature=float(parameters["temperature"]),
            top_p=float(parameters["top_p"]),
            top_k=int(parameters["top_k"]),
            max_tokens=max(1, min(requested, limit)),
            stop_tokens=tuple(parameters.get("stop_token_ids") or ()),
        )

    def _generate(self, prompt, identities, settings):
        generators = [make_generator(self._config.seed, self._step, prompt, *each) for each in identities]
        stop = self._stop_tokens.union(settings.stop_tokens)
        return sample_block(self._model, prompt, generators, settings, stop, self._num_tokens)

    async def update_weights(self, weights, step):
        """Replace the weights by those after a training step."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._model.load_state_dict, weights)
        self._blocks.clear()
        self._step = step


def _stop_tokens(model, tokenizer):
    """Return the tokens that end a completion, which are the same as vLLM's."""
    stop = model.generation_config.eos_token_id
    stop = stop if isinstance(stop, list) else [stop]
    return frozenset([*stop, tokenizer.eos_token_id]) - {None}


def _server_name(replica):
    return f"grpoflow_rollout_{replica}"


class Replica(RolloutReplica):
    """One server. `servers` stays empty: a CPU's server does not sleep and has no cache to control."""

    async def launch_servers(self):
        """Start the server."""
        if self.config.logprobs_mode != "processed_logprobs":
            raise ValueError("actor_rollout_ref.rollout.logprobs_mode must be processed_logprobs on a CPU")
        self._server_address = _server_name(self.replica_rank)
        options = {"name": self._server_address, "num_cpus": 0, "max_concurrency": self.max_concurrency}
        server = ray.remote(**options)(Server)
        self._server_handle = server.remote(self.config, self.model_config.path)


class WeightSender(BaseRollout):
    """The rollout's part in a training worker; there is no memory to resume or release."""

    def __init__(self, config, model_config, device_mesh, replica_rank=-1):
        super().__init__(config, model_config, device_mesh)
        workers = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        self._replica, self._rank = divmod(int(os.environ["RANK"]), workers)
        if (
            replica_rank >= 0
        ):  # a worker beside a server with cards of its own, counted from 0 in each replica
            self._replica = replica_rank

    async def resume(self, tags):
        """Do nothing."""

    async def release(self):
        """Do nothing."""

    async def update_weights(self, weights, wire_format="named_tensors", peft_config=None, **kwargs):
        """Gather the weights on all ranks and send them to the server of the replica."""
        if peft_config is not None:
            key = "actor_rollout_ref.model.lora.merge"
            raise ValueError(f"the rollout on a CPU needs merged weights: set {key}=true")
        gathered = {name: tensor.detach().clone() async for name, tensor in ensure_async_iterator(weights)}
        if self._rank == 0:
            server = ray.get_actor(_server_name(self._replica))
            await server.update_weights.remote(gathered, kwargs["global_steps"])
