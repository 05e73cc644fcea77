"""What a rehearsal demands of this machine before anything starts."""

import json

import pytest

from pipeline.rehearsal.machine import missing_for_mindformers
from pipeline.run.run import prepare_plan
from stages.engines.mindrlhf.engine import ENGINE
from tests.upstream.mindrlhf.rehearsals import write_inputs


@pytest.mark.parametrize(
    ("ids", "unknown"),
    [
        ([], ["bos", "eos", "pad"]),  # those of Qwen2.5
        (["model.pad_token_id=1", "model.bos_token_id=1", "model.eos_token_id=[2,600]"], ["eos"]),
        (["model.pad_token_id=1", "model.bos_token_id=1", "model.eos_token_id=[2]"], []),
    ],
)
def test_special_ids_must_be_tokens_of_the_tokenizer(tmp_path, ids, unknown):
    recipe = [item for item in write_inputs(tmp_path) if "_token_id" not in item]
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "vocab_size": 152064}))
    (tmp_path / "model" / "generation_config.json").unlink()
    plan, _ = prepare_plan([*recipe, "model.vocab_size=152064", *ids], weights=False)
    problems = [problem for problem in missing_for_mindformers(plan, ENGINE) if "token" in problem.path]
    assert [problem.path for problem in problems] == [f"model.{name}_token_id" for name in unknown]
