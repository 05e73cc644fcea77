"""Composition: the same result as Hydra's, a cache that nothing outdated leaves, and refused overrides."""

import itertools
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from hydra_plugins.grpoflow.layout_names import DEGREES
from pipeline.cli import main
from pipeline.config import compose as module
from pipeline.config.compose import LABELS, compose
from pipeline.config.load import load, unchecked
from pipeline.config.sections import Config
from pipeline.errors import ConfigError
from stages.base.identity import field_types
from stages.base.keys import flat
from tests.pipeline.plans import problem_of


@pytest.fixture
def cache(cache):
    return cache / "compose"


@pytest.mark.parametrize("name", ["mine", "配置", "a, b", "it's", "x=y", "~old"])
def test_a_directory_adds_groups(name, tmp_path):
    for group in ("layout", "report"):
        (tmp_path / name / group).mkdir(parents=True)
    layout, report = tmp_path / name / "layout/dp1_mp1_pp1.yaml", tmp_path / name / "report/mine.yaml"
    layout.write_text("defaults: [named]\ntrain: {micro_batch_num: 7}\n")
    report.write_text("defaults: [default]\ntitle: ${nowhere.to.be}\n")
    report.with_name(".#mine.yaml").symlink_to("user@host.1234:5678")  # by an editor
    values = compose(["layout=dp1_mp1_pp1", "report=mine", "report.title=here"], tmp_path / name)
    assert (values["layout"]["train"]["micro_batch_num"], values["report"]["title"]) == (7, "here")
    with pytest.raises(ConfigError, match="--config-dir"):
        compose([], tmp_path / "absent")


def test_a_file_that_a_built_in_file_hides_is_refused(tmp_path):
    (tmp_path / "train").mkdir()
    copied = tmp_path / "train" / "grpo.yaml"
    copied.write_bytes((module.BUILT_IN / "train" / "grpo.yaml").read_bytes())
    assert compose([], tmp_path)["train"]["steps"] == 32
    copied.write_text(copied.read_text().replace("steps: 32", "steps: 64"))
    with pytest.raises(ConfigError, match=r"grpo\.yaml: is not used: the built-in train/grpo\.yaml"):
        compose([], tmp_path)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["train.beta=0.5", "seed=3", "train.beta=0.7"],
        ["model=qwen2_5_7b", "model.path=/a b", "layout=dp1_mp4_pp2", "layout.train.offset=[1,-1]"],
        ["layout.train={data_parallel: 4, model_parallel: 1}", "cards=4"],
        ["+train.extra=1", "train.extra=2"],
        ["dataset=gsm8k", "dataset.columns.prompt=problem", "~evaluate.k"],
        ["store=${oc.env:HOME}/x", "train.steps=${seed}"],
        ["reward.functions=[accuracy,format]", "sft.enabled=false", "train.learning_rate=1e-5"],
    ],
)
def test_the_result_is_the_same_as_hydras(overrides):
    import hydra
    from omegaconf import OmegaConf

    degrees = ["layout=named", "layout.train.model_parallel=4", "layout.train.pipeline_stage=2"]
    expanded = [[override] if override != "layout=dp1_mp4_pp2" else degrees for override in overrides]
    with hydra.initialize_config_module("conf", version_base="1.3"):
        composed = hydra.compose("config", overrides=[word for words in expanded for word in words])
    assert compose(overrides) == OmegaConf.to_container(composed, resolve=True)


def test_compositions_with_the_same_choices_are_independent(cache):
    assert compose(["layout.train.offset=[1]"])["layout"]["train"]["offset"] == [1]
    assert compose([])["layout"]["train"]["offset"] == []


def test_changed_environment_variables_invalidate_the_cache(cache, monkeypatch):
    for value in ("/one", "/two"):
        monkeypatch.setenv("GRPOFLOW_STORE", value)
        monkeypatch.setenv("ANOTHER", value)
        monkeypatch.setenv("tiny", value)
        assert compose([])["store"] == value
        assert compose(["store=${oc.env:ANOTHER}"])["store"] == value
        assert compose(["store='${oc.env:${model.name}}'", "model=tiny"])["store"] == value
    monkeypatch.delenv("GRPOFLOW_STORE")
    assert compose([])["store"] == "store"
    entries = sorted(cache.iterdir())
    monkeypatch.setenv("SLURM_JOB_ID", "4711")  # another variable, which no file names
    assert compose([])["store"] == "store" and sorted(cache.iterdir()) == entries


def test_changed_config_files_invalidate_the_cache_also_behind_links(cache, tmp_path):
    real, groups = tmp_path / "real", tmp_path / "groups"
    real.mkdir()
    groups.mkdir()
    (groups / "dataset").symlink_to(real)
    (real / "again").symlink_to(groups)
    for rows in (10, 20):
        (real / "mine.yaml").write_text(f"defaults: [arith]\ntrain_rows: {rows}\n")
        overrides = ["dataset=mine", "tokenize=arith", "reward=arith"]
        assert compose(overrides, groups)["dataset"]["train_rows"] == rows


def test_changed_code_invalidates_the_cache(cache, tmp_path, monkeypatch):
    assert {"compose.py", "layout_names.py"} <= {file.name for file in module._code()}
    monkeypatch.setattr(module, "_code", lambda: [tmp_path / "code.py"])
    for text in ("one", "other"):
        (tmp_path / "code.py").write_text(text)
        compose([])
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_or_unwritable_cache_costs_only_time(cache, tmp_path, monkeypatch):
    expected = compose([])
    (entry,) = cache.iterdir()
    entry.write_text(json.dumps(expected)[:-10])
    assert compose([]) == expected
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compose([]) == expected


SECRETS = [
    ("model.path=https://user:SECRET@host/x", "model.path"),
    ("model.path=https:/user:SECRET@host/x", "model.path"),
    ("dataset.test_path='s3://KEY:SE/SECRET@b/x'", "dataset.test_path"),
    ("tokenize.system_prompt='You use hf_SECRETabcdefghijklmnopqrstuvwx. Answer.'", "tokenize.system_prompt"),
    ("tokenize.prompt_suffix=ghp_SECRET0123456789abcdefghijklmnopqr", "tokenize.prompt_suffix"),
    ("report.title=AKIASECRETSECRET0123", "report.title"),
    ("reward.functions=[accuracy,'sk-SECRETabcdefghijklmnopqrstuv']", "reward.functions[1]"),
    ("+engine.env={A:b,HF_TOKEN:hf_SECRETabcdefghijklmnopqrst}", "engine.env.HF_TOKEN"),
    ("dataset.columns.prompt='https://host/x?sig=SECRET'", "dataset.columns.prompt"),
]


@pytest.mark.parametrize(("override", "key"), SECRETS)
def test_a_secret_is_refused_in_any_text_and_not_shown_or_cached(override, key, cache, tmp_path):
    """Also from a file of the user's, and from the environment."""
    name, _, value = override.lstrip("+").partition("=")
    if not name.startswith("engine."):
        (tmp_path / "conf" / "experiment").mkdir(parents=True)
        line = f"# @package _global_\n{name.partition('.')[0]}:\n  {name.partition('.')[2]}: {value}\n"
        (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(line)
    for typed, directory in (([override], None), (["experiment=mine"], tmp_path / "conf")):
        if directory is not None and not directory.exists():
            continue
        with pytest.raises(ConfigError) as refused:
            compose(typed, directory)
        assert [problem.path for problem in refused.value.problems] == [key]
        assert "SECRET" not in str(refused.value)
    assert not any(b"SECRET" in file.read_bytes() for file in cache.rglob("*") if file.is_file())


def test_labels_cannot_be_overridden(tmp_path):
    sections = load([]).plain().items()
    labelled = {name for name, values in sections if isinstance(values, dict) and "name" in values}
    assert set(LABELS) == {f"{section}.name" for section in labelled}
    for label in LABELS:
        for form in ("{}=tiny", "++{}='a b'", "+{}=null", "~{}", "~{}=tiny"):
            problem = problem_of([form.format(label)])
            assert problem.path == label and f"use {label.partition('.')[0]}=" in problem.remedy
    for override in ("dataset.name=my_sums", "model.name='my model'"):  # such a remedy would fail as well
        assert override.partition("=")[2].strip("'") not in problem_of([override]).remedy
    assert main(["sweep", "--plan", "model.name=qwen2_5_7b,tiny", f"store={tmp_path / 'store'}"]) == 2


@pytest.mark.parametrize(
    "group", [name for name in field_types(Config) if name not in ("seed", "store", "cards")]
)
@pytest.mark.parametrize("value", ["null", "''", "5", "nosuch", "[nosuch,tiny]"])
def test_a_group_accepts_only_the_name_of_a_choice(group, value):
    if (group, value) != ("remote", "''"):  # no remote
        with pytest.raises(ConfigError, match=group):
            load([f"{group}={value}"])


KEYS = sorted(flat(load([]).plain()))
WRONG = [
    "null", "[]", "{}", "''", "-1", "0", "nan", "inf", "1e999", "true", "x", "[[1]]", "{a:{b:1}}", "'\x1b'",
]  # fmt: skip


@given(st.sampled_from(KEYS), st.sampled_from(WRONG), st.sampled_from(["", "+", "++"]))
def test_any_value_is_accepted_or_refused_with_problems(key, value, sign):
    try:
        load([f"{sign}{key}={value}"])
    except ConfigError as error:
        assert error.problems


@pytest.mark.parametrize("levels", [51, 500])
@pytest.mark.parametrize("value", [lambda n: "[" * n + "]" * n, lambda n: "{a:" * n + "1" + "}" * n])
def test_a_deeply_nested_value_is_refused(levels, value):
    with pytest.raises(ConfigError):
        load([f"seed={value(levels)}"])


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("train.lr=1e-5", "train.learning_rate"),
        ("sft.lr=1e-5", "sft.learning_rate"),
        ("max_new_tokens=64", "rollout.max_tokens"),
        ("gpus=8", "cards"),
        ("layout=dp3_mp4", "dpN_mpN_ppN"),
        ("remote=/data/x", "remote=file:///data/x"),
        ("remote='/数据/a b'", "remote=file:///数据/a b"),
        ("reward=accuracy", "reward.functions=[accuracy]"),
        ("model=qwen2.5-7b", "model=qwen2_5_7b"),
        ("model=Qwen/Qwen2.5-7B", "model.hub.id=Qwen/Qwen2.5-7B"),
        ("dataset=GSM8K", "dataset=gsm8k"),
        ("launcher=kuberay", "launcher=ray launcher.ray_address"),
        ("seed=1,2", "grpoflow sweep seed=1,2"),
        ("reward=glob(*)", "grpoflow sweep 'reward=glob(*)'"),
        ("launcher.sbatch=[--partition=npu]", """'launcher.sbatch=["--a=b","c d"]'"""),
        ("store=/数据/store", """"'/数据/store'\""""),
        ("dataset.columns.prompt=问题", """dataset.columns.prompt='"'"'问题'"'"''"""),
    ],
)
def test_natural_mistakes_get_the_right_suggestion(override, remedy):
    assert remedy in problem_of([override], compose).remedy


def test_a_file_at_any_depth_invalidates_the_cache(cache, tmp_path):
    """Also a new file that takes precedence over a layout's name, and one behind the defaults of another."""
    (tmp_path / "experiment/team/project").mkdir(parents=True)
    (tmp_path / "layout").mkdir()
    experiment, base = tmp_path / "experiment/team/project/e.yaml", tmp_path / "experiment/team/base.yaml"
    experiment.write_text("# @package _global_\ndefaults: [/experiment/team/base, _self_]\nseed: 5\n")
    overrides = ["experiment=team/project/e", "layout=dp1_mp1_pp1"]
    for steps in (10, 20):
        base.write_text(f"# @package _global_\ntrain: {{steps: {steps}}}\n")
        values = compose(overrides, tmp_path)
        assert (values["seed"], values["train"]["steps"]) == (5, steps)
    assert len(list(cache.iterdir())) == 1
    (tmp_path / "layout/dp1_mp1_pp1.yaml").write_text("defaults: [named]\ntrain: {micro_batch_num: 7}\n")
    assert compose(overrides, tmp_path)["layout"]["train"]["micro_batch_num"] == 7


def test_a_variable_named_by_a_deep_file_or_another_variable_invalidates_the_cache(
    cache, tmp_path, monkeypatch
):
    (tmp_path / "experiment/a/b").mkdir(parents=True)
    text = "# @package _global_\nreport: {title: '${oc.env:TITLE,none}'}\nseed: ${oc.decode:${oc.env:SEED}}\n"
    (tmp_path / "experiment/a/b/c.yaml").write_text(text)
    monkeypatch.setenv("SEED", "${oc.env:OTHER}")
    for title, seed in (("first", "1"), ("second", "2"), ("none", "3")):
        monkeypatch.setenv("OTHER", seed)
        monkeypatch.setenv("TITLE", title) if title != "none" else monkeypatch.delenv("TITLE")
        values = compose(["experiment=a/b/c"], tmp_path)
        assert (values["report"]["title"], str(values["seed"])) == (title, seed)
    (entry,) = cache.iterdir()
    assert "second" not in entry.read_text()


@pytest.mark.parametrize("text", ["${now:%H%M%S%f}", "${oc.decode:'${counted:}'}", "${counted:}"])
def test_a_changing_value_is_not_cached(cache, tmp_path, text):
    counter = itertools.count()
    OmegaConf.register_new_resolver("counted", lambda: f"value {next(counter)}", replace=True)
    (tmp_path / "report").mkdir()
    (tmp_path / "report/mine.yaml").write_text(f'defaults: [default]\ntitle: "{text}"\n')
    for overrides, directory in (([f'report.title="{text}"'], None), (["report=mine"], tmp_path)):
        titles = {compose(overrides, directory)["report"]["title"] for _ in range(3)}
        assert len(titles) == 3
    assert not cache.exists()


EXPERIMENTS = sorted(file.stem for file in (module.BUILT_IN / "experiment").glob("*.yaml"))


@pytest.mark.parametrize("layout", ["dp2_mp1_pp1", "tiny"])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_layout_on_the_command_line_replaces_an_experiments(experiment, layout):
    chosen = [f"experiment={experiment}", f"layout={layout}"]
    for overrides in (chosen, chosen[::-1]):
        assert _degrees(unchecked(overrides).plain()) == _degrees(unchecked([f"layout={layout}"]).plain())


def _degrees(values):
    names = (*DEGREES, "micro_batch_num")
    roles = ("train", "generate", "reference")
    return [values["cards"], *([values["layout"][role][name] for name in names] for role in roles)]


CHOICES = [
    "model=qwen2_5_0_5b", "model=tiny_llama", "dataset=openr1_math", "engine=local", "reward=dapo",
    "tokenize=gsm8k", "train=grpo",
]  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("experiment", ["mine", "gsm8k_smoke", "mindrlhf_deepseek_v3"])
def test_a_group_on_the_command_line_replaces_an_experiments_values(experiment, choice, tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/mine.yaml").write_text(
        "# @package _global_\ndefaults: [override /model: tiny_qwen3]\nmodel: {hidden_size: 64, path: /m}\n"
        "dataset: {train_rows: 7}\nreward: {weights: [3.0, 2.0]}\ntokenize: {prompt_suffix: x}\n"
        "train: {steps: 9}\nrollout: {max_tokens: 5}\n"
    )
    composed = compose([f"experiment={experiment}", choice], tmp_path)
    group = choice.partition("=")[0]
    choices = [
        f"{section}={name}" for section, name in _choices(experiment, tmp_path).items() if section != group
    ]
    plain = compose([*choices, choice], tmp_path)
    kept = {"variant": composed["model"]["variant"]} if group == "model" else {}
    if experiment == "mine":
        assert composed["rollout"]["max_tokens"] == 5  # the groups that are not chosen keep its values
    for name in composed[group]:
        # these follow from further keys
        if name not in ("max_addends", "rms_norm_eps", "length", "logged_completions"):
            assert composed[group][name] == {**plain[group], **kept}[name], name


def _choices(experiment, directory):
    """Return the groups that an experiment overrides, with its choices."""
    roots = (directory, module.BUILT_IN)
    file = next(path for root in roots if (path := root / "experiment" / f"{experiment}.yaml").exists())
    defaults = yaml.safe_load(file.read_text()).get("defaults", [])
    return {key.removeprefix("override /"): name for entry in defaults for key, name in entry.items()}


def test_an_experiments_switches_and_variant_remain(tmp_path):
    values = compose(["experiment=verl_7b", "layout=dp2_mp1_pp1", "model=qwen2_5_0_5b"])
    assert values["layout"]["train"]["opt_offload"] and values["layout"]["train"]["recompute"]
    values = compose(["experiment=mindspeed_rl_7b", "model=qwen2_5_0_5b", "layout.train.recompute=false"])
    assert (values["model"]["variant"], values["model"]["hidden_size"]) == ("base", 896)
    assert not values["layout"]["train"]["recompute"]


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("seed", "3", 3), ("train.steps", "+4", 4), ("cards", "2", 2), ("train.beta", "1e-3", 1e-3),
        ("sft.enabled", "False", False), ("train.validate_every", "null", None), ("train.patience", "2", 2),
        ("launcher.master_port", "8118", 8118), ("report.title", "7", "7"), ("store", "12", "12"),
        ("seed", "3.0", "3.0"), ("seed", "x", "x"), ("seed", "", ""), ("sft.enabled", "1", "1"),
        ("engine.use_vllm", "0", 0), ("engine.seq_length", "64", 64), ("engine.env.RANKS", "8", "8"),
        ("train.keep_best", "TRUE", True), ("model.eos_token_id", "[1,2]", "[1,2]"),
    ],
)  # fmt: skip
def test_text_of_an_interpolation_gets_the_type_of_its_key(key, text, value, monkeypatch):
    monkeypatch.setenv("X", text)
    values = flat(compose(["engine=mindrlhf", f"++{key}=${{oc.env:X}}"]))
    assert values[key] == value and type(values[key]) is type(value)


def test_a_number_of_the_environment_counts_in_lists_copies_and_what_follows(monkeypatch):
    monkeypatch.setenv("X", "3")
    overrides = ["train.steps=${oc.env:X}", "seed=${train.steps}", "layout.train.offset=['${oc.env:X}',0]"]
    values = compose(overrides)
    assert (values["seed"], values["train"]["warmup_steps"]) == (3, 3)
    assert values["layout"]["train"]["offset"] == [3, 0]
    assert compose(["seed='3'"])["seed"] == "3"  # typed as text
