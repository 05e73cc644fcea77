"""A composed, a cached and a repeated configuration have equal plans, whatever was composed before."""

import os
import tempfile
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from pipeline.run.run import prepare_plan

OVERRIDES = [
    "seed=1", "seed=true", "seed=1.0", "seed=7000",
    "train.beta=0", "train.beta=0.0", "train.beta=-0.0", "train.beta=1", "train.beta=true",
    "train.learning_rate=1e-5", "train.steps=3", "train.steps=${seed}", "train.keep_best=true",
    "rollout.max_tokens=5", "rollout.max_tokens=7", "evaluate.k=8", "evaluate.num_samples=2",
    "dataset.train_rows=40", "dataset.arith.min_addends=6", "model.name=tiny",
    "model.name=mine", "model.hidden_size=65", "sft.enabled=false", "tokenize.compat=mindrlhf",
    "reward.functions=[accuracy],reward.weights=[1]", "reward.functions=[accuracy],reward.weights=[1.0]",
    "cards=1", "cards=4", "layout=dp1_mp1_pp1", "layout=dp1_mp3_pp1", "layout.train.model_parallel=1",
    "layout.train.offset=[1]", "engine=mindrlhf", "engine=mindspeed_rl", "engine.sft=mindformers",
    "+engine.env.A=1", "+engine.env.A=true", "+engine.env.A=1.0", "dataset=gsm8k", "model=qwen3_8b",
    "train.betta=1", "model=huge", "~evaluate.k",
]  # fmt: skip
"""Groups, keys of each depth, equal values of other types, references, keys with dependants, faults."""
POINT = st.lists(st.sampled_from(OVERRIDES), max_size=3, unique_by=lambda typed: typed.partition("=")[0])


def planned(overrides, cache):
    """Return the plan, or the problems; a repr tells 1 from 1.0 and true, and so does JSON."""
    typed = [part for override in overrides for part in override.split(",")]
    with mock.patch.dict(os.environ, XDG_CACHE_HOME=cache):
        try:
            return prepare_plan(typed)[0]
        except ConfigError as error:
            return error.problems


@given(st.lists(POINT, min_size=2, max_size=3))
@example([[f"train.beta={beta}"] for beta in ("1", "1.0", "true", "0", "0.0", "-0.0")])
@example([[f"+engine.env.A={value}", "engine=mindrlhf"] for value in ("1", "1.0", "true")])
@example(
    [["train.steps=3"], [], ["train.steps=3", "train.beta=0.1"], ["model.name=mine"], ["model.name=tiny"]]
)
def test_plan_does_not_depend_on_the_cache(points):
    with tempfile.TemporaryDirectory() as directory:
        composed = [repr(planned(overrides, "/dev/null")) for overrides in points]
        for _ in range(2):  # fills the cache, then reads it
            assert [repr(planned(overrides, directory)) for overrides in points] == composed
