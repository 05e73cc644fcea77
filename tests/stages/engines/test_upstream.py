"""engine.upstream: every field of every program is reached by grpoflow's keys or by `upstream`."""

import copy
import functools
from collections import defaultdict

import pytest

from stages.engines.template import Entry, entries
from stages.engines.upstream import Field, Upstream
from tests.stages.engines.upstream_cases import CASES, SECTIONS, dependencies, put

UPSTREAM = Upstream(
    {
        "rl.beta": Field("RL", 0.1, Entry(key="train.beta")),
        "rl.steps": Field("RL", 3, Entry()),
        "rl.rate": Field("RL", 0.5, Entry()),
        "rl.name": Field("RL", "a", Entry()),
        "rl.quick": Field("RL", False, Entry()),
        "rl.items": Field("RL", [1], Entry()),
        "rl.layers": Field("RL", False, Entry(any_type=True)),
        "rl.path": Field("RL", "", Entry(fixed="it is a path")),
        "rl.unknown_type": Field("RL", None, Entry()),
        "rl.group": Field("RL", {}, Entry()),
        "free.steps": Field("Free", 3, Entry()),
    },
    ("free",),
)

REFUSED = {
    "rl.beta": [0.2], "rl.path": ["x"], "rl.step": [4], "steps": [4], "rl.zebra": [4], "other.zebra": [4],
    "rl": [4], "rl.steps.more": [4], "rl.steps": [4.0, True, None], "rl.rate": ["1", True], "rl.name": [1],
    "rl.quick": [1], "rl.items": ["1"],
}  # fmt: skip
ACCEPTED = {
    "rl.steps": [4], "rl.rate": [1, 1.5], "rl.name": [""], "rl.quick": [True], "rl.items": [[]],
    "rl.layers": [[1, 2]], "rl.unknown_type": ["x"], "rl.unknown_type.below": [1],
    "rl.group.below": [1], "free.any": ["x"], "free.any.below": [1],
}  # fmt: skip


@pytest.mark.parametrize(("cases", "is_refused"), [(REFUSED, True), (ACCEPTED, False)])
def test_a_key_must_be_known_free_and_of_its_type(cases, is_refused):
    for path, values in cases.items():
        for value in values:
            assert (UPSTREAM.fault(path, value) is not None) is is_refused, (path, value)


def different_value(default):
    """Return a value of the default's type that differs from it."""
    kinds = {bool: lambda: not default, int: lambda: default + 1, float: lambda: default + 0.5}
    kinds |= {str: lambda: f"{default}x", list: lambda: [*default, "x"]}
    return kinds.get(type(default), lambda: 7)()


def with_upstream(case, values):
    """Return a configuration that sets values by their paths."""
    result = copy.deepcopy(case.config)
    result[case.section]["upstream"] = {}
    for path, value in values.items():
        put(result, f"{case.section}.upstream.{path}", value)
    return result


def problems(case, values):
    """Return the remedy for each refused path."""
    listed = case.rules.check(case.job(with_upstream(case, values)))
    start = f"{case.section}.upstream."
    return {
        problem.path.removeprefix(start): problem.remedy
        for problem in listed
        if problem.id.endswith(".upstream")
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_field_is_reached_by_a_key_of_grpoflow_or_by_upstream(case):
    fields = case.upstream.fields
    values = {path: different_value(field.default) for path, field in fields.items()}
    refused = problems(case, values)
    assert refused.keys() == {path for path, field in fields.items() if not field.entry.is_free}
    for path, remedy in refused.items():
        key = fields[path].entry.key
        assert remedy == (f"set {key}" if key else "leave it out")
    reached = {path: value for path, value in values.items() if path not in refused}
    rendered = case.rendered(with_upstream(case, reached))
    assert {path: rendered[path] for path in reached} == reached
    assert len(fields) == len(refused) + len(reached)


@functools.cache
def rendered_from(case):
    """Return for each field the keys that its rendered value depends on."""
    config, result = copy.deepcopy(case.config), defaultdict(set)
    for role in ("generate", "reference"):
        config["layout"][role]["pipeline_stage"] = 2  # offset has an effect with several stages only
    sections = (*SECTIONS, case.section)
    for path, keys in dependencies(config, sections, case.without_upstream).items():
        fields = (name for name in case.upstream.fields if f"{path}.".startswith(f"{name}."))
        result[next(fields, path)] |= keys
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_upstream_cannot_replace_what_is_rendered_from_a_key(case):
    replaceable = [path for path in rendered_from(case) if case.upstream.fault(path, None) is None]
    assert replaceable == []


@pytest.mark.parametrize("table", sorted({case.table for case in CASES}), ids=lambda table: table.parts[-3])
def test_the_table_names_keys_that_the_rendered_values_depend_on(table):
    claimed, actual = set(), set()
    for case in CASES:
        if case.table == table:
            for path, field in case.upstream.fields.items():
                name = field.cls, path.rpartition(".")[2]
                claimed |= {(*name, field.entry.key)} if field.entry.key else set()
                actual |= {(*name, key) for key in rendered_from(case)[path]}
    assert sorted(claimed - actual) == []


def test_the_tables_name_recorded_fields_only():
    recorded = defaultdict(set)
    for case in CASES:
        for path, field in case.upstream.fields.items():
            parts = path.split(".")
            recorded[case.table] |= {".".join([field.cls, *parts[start:]]) for start in range(len(parts))}
            recorded[case.table].add(path)
    for table, names in recorded.items():
        unknown = {name for name in entries(table) if not name.startswith("shared.")} - names
        assert not unknown, (table, unknown)
