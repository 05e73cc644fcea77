"""What grpoflow's programs use of vLLM, without a model: completions follow from prompt and parameters alone.

FAKE_VLLM_CALLS names a file that gets a line per call of `generate`; FAKE_VLLM_DIES a number of calls after
which the process ends as if it was killed.
"""

import os
from dataclasses import dataclass, field
from types import SimpleNamespace

__version__ = "0.0.fake"
CALLS = 0


@dataclass
class SamplingParams:
    """Parameters of one completion."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int = 16
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    stop_token_ids: list = field(default_factory=list)
    ignore_eos: bool = False
    detokenize: bool = True


class LLM:
    """A model that answers with its prompt backwards; a sample continues with digits of its seed."""

    def __init__(self, model, **arguments):
        self.model, self.arguments = model, arguments
        self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(dtype=f"torch.{arguments['dtype']}"))

    def generate(self, prompts, params, use_tqdm=True):
        global CALLS
        CALLS += 1
        if int(os.environ.get("FAKE_VLLM_DIES", "1000")) < CALLS:
            os._exit(137)
        with open(os.environ["FAKE_VLLM_CALLS"], "a", encoding="utf-8") as file:
            cards, cores = (
                os.environ["ASCEND_RT_VISIBLE_DEVICES"],
                os.environ.get("VLLM_CPU_OMP_THREADS_BIND"),
            )
            file.write(f"{os.path.basename(self.model)} {len(prompts)} {cards} {cores}\n")
        return [
            self._output(prompt["prompt_token_ids"], each)
            for prompt, each in zip(prompts, params, strict=True)
        ]

    def _output(self, ids, params):
        drawn = [] if params.seed is None else [int(digit) for digit in str(params.seed)]
        made = [*ids[::-1], *drawn][: params.max_tokens - 1] + params.stop_token_ids[:1]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=made)])
