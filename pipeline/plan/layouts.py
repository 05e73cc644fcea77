"""All layouts that a number of cards allows, ranked by estimated cost (`grpoflow layouts`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from launch.machine.environment import memory_bytes
from pipeline.config import rules
from pipeline.config.compose import compose
from pipeline.config.composed import Composed, ComposedLayout
from pipeline.config.directory import complete
from pipeline.config.load import derive
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from pipeline.terminal import WIDE, Column, Table, say
from stages import engines
from stages.base.layout import card_count
from stages.base.reader import read
from stages.models.cost import ASSUMED, Cost, cost
from stages.models.memory import Fits, RoleMemory, shown

CARDS = 8
_ORDER: dict[Fits, int] = {"yes": 0, "maybe": 1, "no": 2}


@dataclass(frozen=True)
class Choice:
    """Valid layout with its estimates."""

    config: Config
    memory: tuple[RoleMemory, ...]
    cost: Cost
    available: int
    """Bytes of memory per card, or per worker with engine=local."""

    @property
    def needed(self) -> tuple[int, int]:
        """Low and high estimate in bytes per card.

        With engine=local all roles are in memory at once; other engines hold one role at a time.
        """
        combine = sum if self.config.engine.name == "local" else max
        return combine(role.low for role in self.memory), combine(role.high for role in self.memory)

    @property
    def fits(self) -> Fits:
        """Verdict from the low and the high estimate."""
        low, high = self.needed
        return "yes" if high <= self.available else "maybe" if low <= self.available else "no"

    @property
    def headroom(self) -> int:
        """Bytes left by the high estimate; negative if it does not fit."""
        return self.available - self.needed[1]


def find(
    overrides: Sequence[str], config_dir: Path | None = None
) -> tuple[list[Choice], dict[str, list[Problem]]]:
    """Return the valid layouts, best first, and the problems of every other layout by its name.

    The defaults are engine=mindrlhf, layout=named and cards=8; an explicit layout is the only one checked.

    Raises:
        ConfigError: the engine has no estimates, or no layout is valid; has the problems of the one with the
            fewest.
    """
    keys = {override.partition("=")[0] for override in overrides}
    if "experiment" not in keys:
        defaults = {"engine": "mindrlhf", "layout": "named"}
        overrides = [*(f"{key}={value}" for key, value in defaults.items() if key not in keys), *overrides]
    values = complete(compose(overrides, config_dir), overrides)
    single = "layout" in keys and "layout=named" not in overrides
    if values["cards"] is None:
        values["cards"] = card_count(values["layout"]["train"]) if single else CARDS
    composed = read(Composed, values)
    default = derive(composed)
    engine = engines.get(default.engine.name)
    choices: list[Choice] = []
    refused: list[tuple[Config, list[Problem]]] = []
    layouts = [composed.layout] if single else _candidates(composed.layout, default.cards)
    for layout in layouts:
        config = derive(replace(composed, layout=layout))
        problems = rules.check(config)
        if problems:
            refused.append((config, problems))
        else:
            job = engine.job(config)
            load = engine.load(job, memory_bytes())
            if load is None:
                rule = "has no cost estimate, so its layouts cannot be ranked"
                remedy = "check one with grpoflow plan"
                raise ConfigError([Problem("engine", engine.name, rule, remedy)])
            estimate = cost(config.model, config.layout.train, load.tokens, load.updates)
            choices.append(Choice(config, engine.memory(job), estimate, load.available))
    if not choices:
        raise ConfigError(min(refused, key=_distance)[1])
    choices.sort(key=lambda choice: (_ORDER[choice.fits], choice.cost.seconds, -choice.headroom))
    return choices, {config.layout.name: problems for config, problems in refused}


def _distance(refused: tuple[Config, list[Problem]]) -> tuple[int, int, int]:
    """Return a sort key: number of problems, then the degrees that most rules restrict."""
    config, problems = refused
    return len(problems), config.layout.generate.data_parallel, config.layout.train.context_parallel


def _candidates(layout: ComposedLayout, cards: int) -> Iterator[ComposedLayout]:
    """Yield the layout with each factorisation of `cards` into four degrees of train."""
    for mp in _divisors(cards):
        for pp in _divisors(cards // mp):
            for cp in _divisors(cards // (mp * pp)):
                train = replace(
                    layout.train,
                    data_parallel=cards // (mp * pp * cp),
                    model_parallel=mp,
                    pipeline_stage=pp,
                    context_parallel=cp,
                )
                yield replace(layout, train=train)


def _divisors(number: int) -> list[int]:
    return [degree for degree in range(1, number + 1) if number % degree == 0]


def as_json(choices: Sequence[Choice], refused: Mapping[str, Sequence[Problem]]) -> dict[str, Any]:
    """Return the list as JSON data."""
    return {
        "model": choices[0].config.model.name,
        "cards": choices[0].config.cards,
        "engine": choices[0].config.engine.name,
        "available_bytes": choices[0].available,
        "ranked_by": ASSUMED,
        "layouts": [
            {
                "rank": number + 1,
                "layout": choice.config.layout.name,
                "generate": choice.config.layout.generate.name,
                "reference": choice.config.layout.reference.name,
                "fits": choice.fits,
                "low_bytes": choice.needed[0],
                "high_bytes": choice.needed[1],
                "headroom_bytes": choice.headroom,
                "sent_bytes": dict(choice.cost.sent),
                "bubble": choice.cost.bubble,
                "relative_time": choice.cost.seconds / choices[0].cost.seconds,
                "memory": [role.to_json() for role in choice.memory],
            }
            for number, choice in enumerate(choices)
        ],
        "refused": {name: [str(problem) for problem in problems] for name, problems in refused.items()},
    }


def show(choices: Sequence[Choice], refused: Mapping[str, Sequence[Problem]], out: Console) -> None:
    """Print the list as a table."""
    first = choices[0]
    columns = (
        Column("", "number", WIDE), "train", Column("generate", least=60), "fits", Column("memory", least=50),
        Column("most of it", least=WIDE), Column("sends a step", "number", WIDE),
        Column("bubble", "number", WIDE), Column("time", "number"),
    )  # fmt: skip
    title = f"{first.config.model.name} on {first.config.cards} cards of {shown(*[first.available] * 2)}, "
    table = Table(columns, title + first.config.engine.name)
    for number, choice in enumerate(choices):
        largest = max(choice.memory, key=lambda role: role.high)
        sent = sum(choice.cost.sent.values())
        table.add(
            str(number + 1),
            choice.config.layout.name,
            choice.config.layout.generate.name,
            choice.fits,
            shown(*choice.needed),
            largest.role,
            shown(sent, sent),
            f"{choice.cost.bubble:.0%}",
            f"{choice.cost.seconds / first.cost.seconds:.2f}",
        )
    out.print(table)
    say(f"First what fits, then by time, relative to the first: {ASSUMED}. Equal: by headroom.")
    say("Activations are estimates with a range, never measured on an NPU.")
    if refused:
        say(f"{len(refused)} layouts break a rule (--json names each)")
