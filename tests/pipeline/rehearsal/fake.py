"""An engine's rehearsal whose outcome a test decides."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from pipeline.rehearsal.scratch import Scratch
from stages.base.errors import InputError
from stages.engines.rehearsal import Proof

refused: list[Problem] = []
proofs: list[Proof | InputError] = []


def refusals(plan: Plan) -> list[Problem]:
    return refused


def rehearse(plan: Plan, stages: Scratch) -> Iterator[Proof]:
    assert [path.name for path in stages.root.iterdir()] == ["store"]
    (stages.root / "left").touch()
    for proof in proofs:
        if isinstance(proof, InputError):
            raise proof
        yield proof
