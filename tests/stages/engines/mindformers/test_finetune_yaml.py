"""The file for every size, cards and layout: parsed again and held to the facts."""

import ast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stages.engines.mindformers.finetune_yaml import finetune
from stages.engines.outside import dump
from tests.stages.engines.mindformers.jobs import DATA, PATHS, job_of
from tests.stages.engines.rendered import POWERS, SIZES, flat, layout


def declared():
    """KEYS of the stand-in, written down apart from the code under test."""
    body = ast.parse((DATA / "mindformers_standin" / "run_mindformer.py").read_text()).body
    (keys,) = (node.value for node in body if isinstance(node, ast.Assign) and node.targets[0].id == "KEYS")
    return {section: set(names.split()) for section, names in ast.literal_eval(keys).items()}


@st.composite
def runs(draw):
    size = draw(st.sampled_from(sorted(SIZES)))
    layers, heads, kv_heads, tied = SIZES[size]
    mp = draw(st.sampled_from([n for n in POWERS if heads % n == 0 and kv_heads % n == 0]))
    pp = draw(st.sampled_from([n for n in POWERS if n <= min(layers, 64 // mp)]))
    cp = 1 if tied else draw(st.sampled_from([n for n in (1, 2) if n * pp * mp <= 64]))
    dp = draw(st.sampled_from([n for n in POWERS if n * cp * pp * mp <= 64]))
    return {
        "size": size, "dp": dp, "mp": mp, "pp": pp, "cp": cp,
        "micro": draw(st.sampled_from([1, 2, 4])), "per_card": draw(st.sampled_from([1, 2])),
        "schedule": draw(st.sampled_from(["constant", "cosine", "linear"])),
        "share": draw(st.sampled_from([0.0, 0.1, 1.0])), "clip": draw(st.sampled_from(["null", "0.5"])),
        "optimizer": draw(st.booleans()), "sequence": draw(st.booleans()), "resume": draw(st.booleans()),
    }  # fmt: skip


@given(runs())
def test_every_rule_holds(run):
    micro = run["pp"] * run["micro"] if run["pp"] > 1 else run["micro"]
    batch = run["per_card"] * run["dp"] * micro
    job = job_of(
        f"model=qwen2_5_{run['size']}",
        layout(run),
        f"layout.train.enable_parallel_optimizer={run['optimizer']}",
        f"layout.train.use_seq_parallel={run['sequence']}",
        f"mindformers.examples_per_card={run['per_card']}",
        f"mindformers.batch_size={batch}",
        f"mindformers.schedule={run['schedule']}",
        f"mindformers.final_share={run['share']}",
        f"mindformers.max_grad_norm={run['clip']}",
        "tokenize.sft_length=1024",
        "train.prompts_per_step=128",
    )
    values = yaml.safe_load(dump(finetune(job, PATHS, run["resume"])))
    known = declared()
    for section, keys in known.items():
        result = values[section] if section else values
        assert set(result) <= keys, (section, set(result) - keys)
    degrees, runner, model = (
        values["parallel_config"],
        values["runner_config"],
        values["model"]["model_config"],
    )
    cards = run["dp"] * run["mp"] * run["pp"] * run["cp"]
    product = 1
    for key in ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel"):
        product *= degrees[key]
    assert product == cards == job.layout.cards
    assert values["use_parallel"] is (cards > 1)
    assert values["auto_trans_ckpt"] is (cards > 1 and not run["resume"])
    assert values["resume_training"] is run["resume"]
    # base_trainer.py, _check_global_batch_size_for_auto_parallel
    parts = degrees["micro_batch_num"] if run["pp"] > 1 else runner["gradient_accumulation_steps"]
    assert runner["batch_size"] * degrees["data_parallel"] * parts == batch
    assert run["pp"] == 1 or (
        runner["gradient_accumulation_steps"],
        degrees["micro_batch_num"] >= run["pp"],
    ) == (1, True)
    layers, heads, kv_heads, tied = SIZES[run["size"]]
    assert (model["num_layers"], model["num_heads"], model["n_kv_heads"]) == (layers, heads, kv_heads)
    assert (model["seq_length"], model["tie_word_embeddings"]) == (1024, tied)
    assert model["pad_token_id"] == 151643
    assert values["train_dataset_task"]["dataset_config"] == values["train_dataset"]
    for value in flat(values["recompute_config"]).values():
        assert not isinstance(value, list) or (len(value), sum(value)) == (run["pp"], layers)
    assert values["parallel"]["enable_parallel_optimizer"] is run["optimizer"]
    rate, wrapper = values["lr_schedule"], values["runner_wrapper"]
    falls = run["schedule"] != "constant" and run["share"] < 1
    assert ("lr_end" in rate) is falls
    assert rate["type"] == (
        {"cosine": "CosineWithWarmUpLR", "linear": "PolynomialWithWarmUpLR"}[run["schedule"]]
        if falls
        else "ConstantWarmUpLR"
    )
    assert wrapper["use_clip_grad"] is (run["clip"] != "null")


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("7b_8cards", ["model=qwen2_5_7b", "layout=dp1_mp4_pp2", "tokenize.sft_length=4096"]),
        ("0_5b_1card", ["model=qwen2_5_0_5b", "layout=dp1_mp1_pp1", "tokenize.sft_length=2048"]),
    ],
)
def test_rendered_files_equal_the_golden_ones(name, overrides):
    golden = DATA / "mindformers_golden" / f"{name}.yaml"
    text = dump(finetune(job_of(*overrides), PATHS, resume=False))
    assert text == golden.read_text(), f"{golden} differs; is the change meant?"
