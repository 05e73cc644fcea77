"""The schema of metrics explains every name that engines' logs are read into."""

import pytest

from stages.engines.mindrlhf.logs import NAMES as MINDRLHF
from stages.engines.mindrlhf_one_stage.logs import LogReader as OneStage
from stages.engines.mindspeed_rl.logs import NAMES as MINDSPEED_RL
from stages.engines.mindspeed_rl.logs import RATES, SCORES, read_line
from stages.grpo.metrics import OUTSIDE, SCHEMA
from tests.stages.engines.mindrlhf.test_logs import NEW, read
from tests.stages.engines.mindrlhf_one_stage.test_stage import LATEST
from tests.stages.engines.mindspeed_rl.test_logs import HEAD


def metric_names():
    reader, iteration = OneStage(1), read_line(HEAD, cards=1)
    assert iteration is not None
    return {
        "mindrlhf": {*MINDRLHF.values(), *read(NEW)[1][0]},
        "mindrlhf_one_stage": {name for line in LATEST for name in (reader.read(line) or [{}])[0]},
        "mindspeed_rl": {*MINDSPEED_RL.values(), *SCORES.values(), *RATES.values(), *iteration[0]},
    }


@pytest.mark.parametrize("engine", ["mindrlhf", "mindrlhf_one_stage", "mindspeed_rl"])
def test_every_metric_of_an_engine_is_explained(engine):
    names = metric_names()[engine]
    assert {"step", "reward", "loss", "lr", "step_s"} <= names
    unknown = names - SCHEMA.keys() - OUTSIDE.keys()
    assert [name for name in unknown if f"{name.split('/')[0]}/*" not in SCHEMA.keys() | OUTSIDE.keys()] == []
