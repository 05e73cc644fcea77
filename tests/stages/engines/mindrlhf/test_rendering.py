"""Every file for every size, cards, layout, variant and version: parsed again and held to the facts."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stages.engines.mindrlhf.start import all_configs, arguments, render
from stages.engines.outside import dump
from tests.stages.engines.mindrlhf.jobs import DATA, job_of, paths
from tests.stages.engines.rendered import POWERS, SIZES, flat, layout


@st.composite
def settings_of_a_run(draw):
    size = draw(st.sampled_from(sorted(SIZES)))
    layers, heads, kv_heads, tied = SIZES[size]
    mp = draw(st.sampled_from([n for n in POWERS if heads % n == 0 and kv_heads % n == 0]))
    pp = draw(st.integers(1, min(layers, 64 // mp)))
    cp = 1 if tied else draw(st.sampled_from([n for n in (1, 2) if n * pp * mp <= 64]))
    dp = draw(st.integers(1, 64 // (cp * pp * mp)))
    replicas = dp * pp * cp  # of generation: with one, what MindFormers generates teaches nothing
    form = draw(st.sampled_from(["hf_safetensors", "ms_safetensors", *(["ckpt"] if replicas > 1 else [])]))
    contract = draw(st.sampled_from(["0cd087455", "e8a8fc1"]))
    generators = [1, *([0] if replicas > 1 else []), *([2] if contract == "0cd087455" else [])]
    return {
        "size": size, "dp": dp, "mp": mp, "pp": pp, "cp": cp,
        "variant": draw(st.sampled_from(["base", "instruct"])),
        "contract": contract, "pack_num": draw(st.sampled_from([1, 2])),
        "format": form, "vllm": 0 if form == "ckpt" else draw(st.sampled_from(generators)),
        "recompute": draw(st.booleans()), "select": draw(st.booleans()),
        "optimizer": draw(st.booleans()), "sequence": draw(st.booleans()), "resume": draw(st.booleans()),
    }  # fmt: skip


def made(run):
    return job_of(
        f"model=qwen2_5_{run['size']}",
        f"model.variant={run['variant']}",
        layout(run),
        f"layout.train.recompute={run['recompute']}",
        f"layout.train.select_recompute={run['select']}",
        f"layout.train.enable_parallel_optimizer={run['optimizer']}",
        f"layout.train.use_seq_parallel={run['sequence']}",
        f"engine.contract={run['contract']}",
        f"engine.load_ckpt_format={run['format']}",
        f"engine.use_vllm={run['vllm']}",
        f"engine.pack_num={run['pack_num']}",
        f"train.prompts_per_step={2 * run['dp'] * run['mp'] * run['pp'] * run['cp']}",
    )


@given(settings_of_a_run())
def test_every_rule_holds_in_every_file(run):
    job = made(run)
    files = {
        name: yaml.safe_load(dump(values))
        for name, values in all_configs(job, paths(job), run["resume"]).items()
    }
    grpo = files["grpo_config.yaml"]
    layers, heads, kv_heads, tied = SIZES[run["size"]]
    cards = run["dp"] * run["mp"] * run["pp"] * run["cp"]
    roles = {
        "finetune.yaml": grpo["actor_config"],
        "reference.yaml": grpo["ref_config"],
        "predict.yaml": grpo["generate_config"],
    }
    for file, role in roles.items():
        degrees, model = role["parallel_config"], files[file]["model"]["model_config"]
        assert role["model_config"] == f"/run/configs/{file}"
        product = degrees["data_parallel"] * degrees["model_parallel"] * degrees["pipeline_stage"]
        assert product * degrees["context_parallel"] == cards
        assert heads % degrees["model_parallel"] == 0 and kv_heads % degrees["model_parallel"] == 0
        assert files[file]["parallel_config"] == degrees
        assert model["tie_word_embeddings"] is tied
        assert (model["num_layers"], model["num_heads"], model["n_kv_heads"]) == (layers, heads, kv_heads)
        for value in flat(files[file]["recompute_config"]).values():
            if isinstance(value, list):
                assert len(value) == degrees["pipeline_stage"]
                assert sum(value) == layers
        if layers % degrees["pipeline_stage"]:
            assert len(role["offset"]) == degrees["pipeline_stage"]
            assert sum(role["offset"]) == layers % degrees["pipeline_stage"]
        ids = {"bos_token_id": model["bos_token_id"], "pad_token_id": model["pad_token_id"]}
        assert set(ids.values()) == {151643}
    texts = [value for values in files.values() for value in flat(values).values()]
    assert 153643 not in texts
    sampling, rl = grpo["generate_config"]["sampling_config"], grpo["rl_config"]
    assert sampling["bos_token_id"] == sampling["pad_token_id"] == 151643
    assert sampling["eos_token_id"] == ([151645, 151643] if run["variant"] == "instruct" else [151643])
    assert grpo["generate_config"]["parallel_config"]["pipeline_stage"] == 1
    actor = grpo["actor_config"]
    assert actor["optimizer"]["opt_offload"] is False  # adam.py:161
    assert rl.get("enable_full_monitor", False) is False  # grpo_models.py:377
    assert actor["lr_schedule"]["min_lr"] < actor["lr_schedule"]["lr"]  # CosineDecayLR
    assert actor["recompute_config"]["recompute"] is run["recompute"]
    assert actor["recompute_config"]["select_recompute"] is run["select"]
    assert actor["enable_parallel_optimizer"] is run["optimizer"]
    assert actor["parallel_config"]["use_seq_parallel"] is run["sequence"]
    assert actor["parallel_config"]["micro_batch_num"] >= run["pp"]
    check_samples(grpo, run["pp"])
    assert grpo["generate_config"]["use_vllm"] == run["vllm"]
    begun = render(job, paths(job)).start
    assert begun.workers == cards <= 64
    assert (begun.env.get("vLLM_MODEL_BACKEND") == "MindFormers") is (run["vllm"] > 0)
    assert ("--resume_training" in begun.again, "--resume_training" in begun.program) == (True, False)
    assert rl["load_ckpt_format"] in ("hf_safetensors", "ms_safetensors") or not run["resume"]
    assert len(grpo["reward_config"]["verifier_function"]) == len(grpo["reward_config"]["verifier_weight"])


def check_samples(grpo, pp):
    """Completions fill whole batches, and the longest fits; counted from the files alone."""
    rl, actor, infer, ref = (grpo[f"{name}_config"] for name in ("rl", "actor", "generate", "ref"))
    degrees = actor["parallel_config"]
    samples = rl["num_rollouts"] * rl["chunk_size"] * infer["parallel_config"]["data_parallel"]
    packs = samples * rl["num_generations"] / rl["pack_num"]
    update = rl["batch_size"] * degrees["data_parallel"] * (degrees["micro_batch_num"] if pp > 1 else 1)
    assert packs >= update and packs % update == 0
    assert packs % (ref["ref_model_batch_size"] * ref["parallel_config"]["data_parallel"]) == 0
    assert packs % (rl["batch_size"] * degrees["data_parallel"]) == 0
    longest = infer["max_prompt_length"] + infer["sampling_config"]["max_tokens"]
    assert rl["pack_num"] * (longest + 1) <= rl["seq_length"] <= infer["max_model_len"]
    if "qwen" in rl["model_name"]:
        assert rl["seq_length"] >= 2048  # transformer.py:1261


@pytest.mark.parametrize("contract", ["0cd087455", "e8a8fc1"])
def test_arguments_are_those_of_the_version(contract):
    job = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"engine.contract={contract}")
    main = (DATA / "mindrlhf_standin" / contract / "examples/grpo/qwen_grpo_tutorial/main.py").read_text()
    for argument in arguments(job, paths(job), resume=True):
        assert f'"{argument.partition("=")[0]}"' in main


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("7b_8cards", ["model=qwen2_5_7b", "layout=dp1_mp4_pp2"]),
        ("7b_2cards", ["model=qwen2_5_7b", "layout=dp1_mp2_pp1"]),
        ("32b_32cards", ["model=qwen2_5_32b", "layout=dp1_mp8_pp4", "layout.train.recompute=true"]),
    ],
)
def test_rendered_files_equal_the_golden_ones(name, overrides):
    job = job_of(*overrides)
    for file, values in all_configs(job, paths(job), resume=False).items():
        golden = DATA / "mindrlhf_golden" / name / file
        assert dump(values) == golden.read_text(), f"{golden} differs; is the change meant?"


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_rate_falls_over_all_updates(iterations):
    job = job_of(
        "model=qwen2_5_7b", "layout=dp1_mp4_pp2", "train.steps=50", "train.warmup_steps=7",
        f"train.num_iterations={iterations}", "engine.contract=e8a8fc1",
    )  # fmt: skip
    schedule = all_configs(job, paths(job), False)["grpo_config.yaml"]["actor_config"]["lr_schedule"]
    assert (schedule["decay_steps"], schedule["warmup_step"]) == (50 * iterations, 7)
