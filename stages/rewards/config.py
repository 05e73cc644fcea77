"""Configuration of the reward."""

import difflib
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from stages.base.bounds import NonNegative, NonNegativeFloat, Positive, PositiveFloat
from stages.base.errors import Problem
from stages.base.identity import NotInIdentity
from stages.rewards.functions import ITEM_REWARDS
from stages.rewards.length import LENGTH_REWARDS, LengthConfig

BUILTIN = (*ITEM_REWARDS, "maths", *LENGTH_REWARDS, "judge", "code")
COMPARISONS = ("code", "maths", "knights", "number")
"""Functions that tell right from wrong answers, the first that the reward uses."""
OF_MINDRLHF = ("accuracy", "qwen_accuracy")
"""mindrlhf's functions for numbers, which compare them as text."""
SANDBOX = "bwrap"
"""Program of bubblewrap, in which reward code runs programs."""
SANDBOX_REMEDY = "apt-get install bubblewrap (openEuler: dnf install bubblewrap)"
PLACEHOLDER = re.compile(r"\{(\w+)\}")
OF_TEMPLATES = ("prompt", "completion", "solution")
"""Placeholders of a judge's prompt that no column of the dataset replaces."""
DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class JudgeConfig:
    """The model that judges completions, what it is asked, and how its answer is read."""

    url: Annotated[str, NotInIdentity()]
    """Address up to the version, for example http://127.0.0.1:8000/v1; /chat/completions is added."""
    model: str
    """Name of the model as the service knows it."""
    prompt: str
    """What it is asked: {completion} is replaced by the completion, {prompt} by the prompt, {solution} by the
    ground truth, and any other name in braces by that column of the dataset."""
    score_pattern: str
    """Regular expression with one group, the score; its last match in the answer counts."""
    score_range: tuple[float, ...]
    """Lowest and highest score; the reward is 0.0 for the first and 1.0 for the second. A score outside of
    them counts as a failure."""
    temperature: NonNegativeFloat = 0.0
    """Of the judge's answer; 0: greedy."""
    max_tokens: Positive | None = 512
    """Longest answer of the judge in tokens; null: the service decides."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the request, for example {chat_template_kwargs: {enable_thinking: false}}."""
    key_variable: Annotated[str | None, NotInIdentity()] = None
    """Environment variable with the key of the service. The key itself is neither stored nor logged."""
    concurrency: Annotated[Positive, NotInIdentity()] = 16
    """Requests at the same time."""
    retries: Annotated[NonNegative, NotInIdentity()] = 4
    """Repetitions of a request after a connection error, a time limit, or an answer such as 429 or 503."""
    timeout_s: Annotated[PositiveFloat, NotInIdentity()] = 120.0
    """Seconds for one request."""
    cache: Annotated[str | None, NotInIdentity()] = None
    """Directory in which answers are kept by the content of the request, for later runs, too; null: only in
    memory. It has prompts' answers, but no key and no address."""
    prompt_price: Annotated[NonNegativeFloat, NotInIdentity()] = 0.0
    """Price of a million tokens of requests, in any currency, for the metric judge_cost."""
    completion_price: Annotated[NonNegativeFloat, NotInIdentity()] = 0.0
    """Price of a million tokens of answers."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the dataset that the template names."""
        names = dict.fromkeys(PLACEHOLDER.findall(self.prompt))
        return tuple(name for name in names if name not in OF_TEMPLATES)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Named arguments that the template needs: prompts, and columns of the dataset."""
        takes_prompts = "prompt" in PLACEHOLDER.findall(self.prompt)
        return (*(["prompts"] if takes_prompts else []), *self.columns)


@dataclass(frozen=True)
class CodeConfig:
    """Tests of the program in a completion, and the limits of what it may use."""

    tests: str | None
    """Column of the dataset with the tests; null: the ground truth. Python source with assertions, a list of
    such sources, or {"inputs": [...], "outputs": [...]} for programs that read standard input; as values or
    as JSON text."""
    partial: bool
    """true: the reward is the share of tests that pass; false: 1.0 if all pass."""
    timeout_s: PositiveFloat
    """Seconds for all assertions of a row together, and for each input: of CPU, and twice as many in all."""
    memory_mib: Positive
    """Address space of each process, and again what it may write to /tmp."""
    processes: Positive
    """Processes and threads at the same time, the program's own included."""
    files: Positive
    """Open files of a process."""
    workers: Annotated[Positive, NotInIdentity()] = 4
    """Programs that run at the same time."""
    python: Annotated[str | None, NotInIdentity()] = None
    """Interpreter that runs them, with its packages; null: that of the process that computes rewards, without
    packages."""


@dataclass(frozen=True)
class RewardConfig:
    """A weighted sum of reward functions."""

    functions: tuple[str, ...]
    """Built-in names (ITEM_REWARDS in functions.py; maths with the package math-verify; LENGTH_REWARDS in
    length.py) or the user's `module:function`. It is called once per step with all completions and ground
    truths, and by name with those of the prompts and the dataset's columns that it accepts; it returns one
    number for each completion, or None for one that it can't score."""
    weights: tuple[float, ...]
    """One factor per function; mindrlhf's verifier_weight."""
    length: LengthConfig | None
    """Settings of the rewards by length; required if there is one."""
    max_failures: Annotated[NonNegative | None, NotInIdentity()] = None
    """Completions of a step for which one function may raise, take too long or return no finite number (they
    count 0); one more ends the run. The limit also holds for evaluate's prompts. null: a tenth of them."""
    timeout_s: Annotated[PositiveFloat, NotInIdentity()] = 60.0
    """Seconds for one call of a user's function. If a call with all completions raises or takes longer, they
    are scored one by one to find those that fail, for five times as long in total. maths compares one answer
    at a time, for a twelfth of it."""
    files: Annotated[tuple[str, ...], NotInIdentity()] = ()
    """Files that the user's functions read while they run: their content is fingerprinted, as the functions'
    own files are."""
    judge: JudgeConfig | None = None
    """Settings of the reward judge; required if it is used."""
    code: CodeConfig | None = None
    """Settings of the reward code; required if it is used."""


def uses(config: RewardConfig, name: str) -> bool:
    """Return True if a function is part of the reward, or tells right from wrong in it (cosine)."""
    by_length = config.length if "cosine" in config.functions else None
    return name in config.functions or (by_length is not None and by_length.correct_by == name)


def reads_columns(config: RewardConfig) -> bool:
    """Return True if a function may ask for columns of the dataset: the user's, judge, or code."""
    judge = config.judge if "judge" in config.functions else None
    code = config.code if "code" in config.functions else None
    return (
        any(name not in BUILTIN for name in config.functions)
        or (judge is not None and bool(judge.columns))
        or (code is not None and code.tests is not None)
    )


def comparison_of(config: RewardConfig | None) -> str:
    """Return the function that tells right from wrong answers in accuracies.

    It is the one that the reward uses: accuracy for mindrlhf's functions, so that rewards and accuracies of
    its runs agree; number if the reward has none.
    """
    if config is None:
        return "number"
    mindrlhf = "accuracy" if any(uses(config, name) for name in OF_MINDRLHF) else "number"
    return next((name for name in COMPARISONS if uses(config, name)), mindrlhf)


def comparing(config: RewardConfig | None) -> RewardConfig:
    """Return a reward of the comparison alone: above 0 for a right answer; code: if all tests pass."""
    alone = RewardConfig((comparison_of(config),), (1.0,), None)
    if config is None:
        return alone
    code = None if config.code is None else replace(config.code, partial=False)
    return replace(alone, max_failures=config.max_failures, timeout_s=config.timeout_s, code=code)


def problems(config: RewardConfig) -> Iterator[Problem]:
    """Yield problems of the section reward; imports no user function."""
    source, names = "ours: stages/rewards", config.functions
    if not names:
        rule = "must name at least one function"
        yield Problem("reward.functions", [], rule, "set it to [number]", source)
    if len(config.weights) != len(names):
        rule = f"must have one weight for each of the {len(names)} functions"
        remedy = f"set it to {[1.0] * len(names)}"
        yield Problem("reward.weights", list(config.weights), rule, remedy, source)
    for index in range(len(names)):
        yield from _function_problems(config, index)
    yield from _service_problems(config)
    if config.files and all(name in BUILTIN for name in names):
        rule = "has no effect without a module:function in reward.functions"
        yield Problem("reward.files", list(config.files), rule, "set it to []", source)
    if uses(config, "maths") and importlib.util.find_spec("math_verify") is None:
        rule = "maths needs the package math-verify"
        yield Problem("reward.functions", list(names), rule, "pip install 'grpoflow[maths]'", source)
    if config.length is not None:
        for key, ends in (("correct", config.length.correct), ("wrong", config.length.wrong)):
            if len(ends) != 2:
                rule = "must be two numbers: for no length, and for max_tokens"
                yield Problem(f"reward.length.{key}", list(ends), rule, "give both, as in [1.0,0.5]", source)


def _service_problems(config: RewardConfig) -> Iterator[Problem]:
    """Yield problems of the settings of judge and code."""
    source, names = "ours: stages/rewards", config.functions
    for name, settings in (("judge", config.judge), ("code", config.code)):
        if name in names and settings is None:
            rule, remedy = f"is required for {name}", f"see conf/reward/{name}.yaml"
            yield Problem(f"reward.{name}", None, rule, remedy, source)
    if "judge" in names and config.judge is not None:
        yield from _judge_problems(config.judge)
    if "code" in names and config.code is not None:
        yield from _code_problems(config.code)


def _function_problems(config: RewardConfig, index: int) -> Iterator[Problem]:
    """Yield problems of one function of the reward."""
    name, source = config.functions[index], "ours: stages/rewards"
    path = f"reward.functions[{index}]"
    if name not in BUILTIN and not DOTTED.fullmatch(name):
        near = difflib.get_close_matches(name, BUILTIN, 1) or ["number"]
        rule = f"must be one of {', '.join(BUILTIN)}, or module:function"
        yield Problem(path, name, rule, f"use {near[0]}", source)
    if name in config.functions[:index]:
        yield Problem(path, name, "is named twice", "add up the weights", source)
    if name in LENGTH_REWARDS and config.length is None:
        example = "dapo" if name == "soft_overlong" else "cosine"
        rule, remedy = f"is required for {name}", f"see conf/reward/{example}.yaml"
        yield Problem("reward.length", None, rule, remedy, source)


def _judge_problems(config: JudgeConfig) -> Iterator[Problem]:
    """Yield problems of the section reward.judge; nothing is asked."""
    source = "ours: stages/rewards/judge.py"
    yield from _url_problems(config.url)
    if not config.model:
        rule, remedy = "is required", "give the name under which the service knows the model"
        yield Problem("reward.judge.model", config.model, rule, remedy, source)
    if "{completion}" not in config.prompt:
        rule, remedy = "must contain {completion}", "say where the judge finds the text that it scores"
        yield Problem("reward.judge.prompt", config.prompt, rule, remedy, source)
    try:
        groups = re.compile(config.score_pattern).groups
    except re.error as error:
        remedy = "for example 'Score: (\\d+)'"
        rule = f"is no regular expression: {error}"
        yield Problem("reward.judge.score_pattern", config.score_pattern, rule, remedy, source)
    else:
        if groups != 1:
            rule = f"must have one group, the score; it has {groups}"
            remedy = "for example 'Score: (\\d+)'; groups that are not the score begin with (?:"
            yield Problem("reward.judge.score_pattern", config.score_pattern, rule, remedy, source)
    bounds = config.score_range
    if len(bounds) != 2 or bounds[0] == bounds[1]:
        rule = "must be two different numbers, the lowest and the highest score"
        yield Problem("reward.judge.score_range", list(bounds), rule, "for example [0,10]", source)
    if config.key_variable is not None and not os.environ.get(config.key_variable):
        rule = "names an environment variable that is not set here"
        remedy = "export it where grpoflow starts, or set it to null for a service without a key"
        yield Problem("reward.judge.key_variable", config.key_variable, rule, remedy, source)


def _url_problems(url: str) -> Iterator[Problem]:
    """Yield problems of the address of a judge."""
    source = "ours: stages/rewards/judge.py"
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        rule = "must be an address such as http://127.0.0.1:8000/v1"
        yield Problem("reward.judge.url", url, rule, "give the part before /chat/completions", source)
    elif address.username or address.query or address.fragment:
        rule = "must have no user, password, query or fragment: it is stored with the run"
        remedy = "put the key into the environment variable that reward.judge.key_variable names"
        yield Problem("reward.judge.url", "…", rule, remedy, source)
    elif address.path.rstrip("/").endswith("/chat/completions"):
        remedy = "leave /chat/completions out, which is added"
        yield Problem("reward.judge.url", url, "must end with the version", remedy, source)


def _code_problems(config: CodeConfig) -> Iterator[Problem]:
    """Yield problems of the section reward.code; no program is run."""
    source = "ours: stages/rewards/code.py"
    if shutil.which(SANDBOX) is None:
        rule = "code needs bubblewrap, which is not installed: generated programs run in no other place"
        yield Problem("reward.functions", "code", rule, SANDBOX_REMEDY, source)
    if config.python is not None and shutil.which(config.python) is None:
        rule = "is no program"
        yield Problem("reward.code.python", config.python, rule, "give a Python interpreter", source)
