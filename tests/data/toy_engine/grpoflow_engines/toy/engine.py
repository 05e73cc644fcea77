"""engine=toy: grpo from the fetched weights, without evaluation and export."""

from dataclasses import replace

from stages import catalog
from stages.base.graph import Program, Stage
from stages.base.rules import Rules, at_most
from stages.engines.declaration import Declaration, Declared

GRPO = Program("toy", "stages.engines.toy.stage", version=1)
RULES = Rules("toy", "ours")
RULES.must("engine.steps", at_most(9))


def stages(run) -> tuple[Stage, ...]:
    """Return the graph after fetch."""
    unused = "engine=toy reads the fetched directory"
    return (
        replace(catalog.CONVERT, skipped=unused),
        catalog.TOKENIZE,
        replace(catalog.STRATEGY, skipped=unused),
        replace(catalog.SPLIT, skipped=unused),
        replace(catalog.SFT, skipped=unused),
        replace(
            catalog.GRPO,
            sections=("model", "engine", "seed"),
            inputs={"tokenize": "tokenize", "fetch": "fetch"},
            computes=True,
            required_files=lambda config: (catalog.RESULT, "weights.bin"),
            program=GRPO,
        ),
        replace(catalog.EVALUATE, skipped="engine=toy trains nothing"),
        replace(catalog.EXPORT, skipped="engine=toy trains nothing"),
    )


ENGINE = Declared(
    Declaration(
        name="toy",
        trains=lambda family: family.name == "qwen2",
        stages=stages,
        rules=RULES,
        programs=(GRPO,),
    )
)
