"""engine.sft=mindformers: as tests/pipeline/test_rules.py."""

# ruff: noqa: E501  (a table: one line for what breaks, one for what keeps)

from pathlib import Path

import pytest

from stages.engines.mindformers import job
from tests.pipeline.rule_cases import Rule, check, rule, without_entry, without_source

HOME = Path(__file__).parents[1] / "data" / "mindformers_standin"
BASE = (
    "engine=mindrlhf",
    "engine.sft=mindformers",
    "model=qwen2_5_7b",
    "model.path=/models/qwen",
    "layout=dp1_mp4_pp2",
)
DEEP = ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek")


def of(breaks: str, path: str, told: str, keeps: str = "", base: tuple[str, ...] = BASE) -> Rule:
    return rule(breaks, path, told, keeps, base)


RULES = {
    "batch": of("mindformers.examples_per_card=3", "mindformers.batch_size", "must be a multiple of data_parallel", "mindformers.examples_per_card=4"),
    "filled": of("mindformers.batch_size=1", "mindformers.batch_size", "at least pipeline_stage=2 micro-batches", "mindformers.batch_size=2"),
    "embedding": of("layout.train.vocab_emb_dp=true", "layout.train.vocab_emb_dp", "must be false with a pipeline", "layout.train.vocab_emb_dp=false"),
    "cut_rows": of("layout.train.use_seq_parallel=true tokenize.sft_length=1025", "tokenize.sft_length", "must be a multiple of 4", "layout.train.use_seq_parallel=true tokenize.sft_length=1028"),
    "positions": of("tokenize.sft_length=32769", "tokenize.sft_length", "must be at most model.max_position_embeddings=32768", "tokenize.sft_length=32768"),
    "deepseek": of("engine.sft=mindformers", "engine.sft", "trains Qwen2 models", "engine.sft=off", DEEP),
    "compat": of("tokenize.compat=mindrlhf", "tokenize.compat", "must be none with engine.sft=mindformers", "tokenize.compat=none"),
    "home": of("mindformers.home=/nowhere", "mindformers.home", "must be a checkout of mindformers", f"mindformers.home={HOME}"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_the_smallest_config_that_breaks_it_and_the_smallest_that_keeps_it(name: str) -> None:
    check(RULES[name])


def test_every_rule_has_an_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "run_mindformer.py").write_text("parser.add_argument('--config')")
    old = of(
        f"mindformers.home={tmp_path}",
        "mindformers.home",
        "lacks --auto_trans_ckpt",
        f"mindformers.home={HOME}",
    )
    check(old)
    assert without_entry((job,), {**RULES, "old": old}, monkeypatch) == []


def test_what_it_forbids_has_a_source() -> None:
    assert without_source({name: one for name, one in RULES.items() if name != "home"}) == []
