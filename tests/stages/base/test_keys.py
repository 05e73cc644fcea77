from stages.base.keys import flat, leaves

VALUES = {"a": {"b": 1, "c": {}, "d": {"e": [{"f": 2}]}}, "g": (1, 2), "h": None}


def test_nested_values_have_dotted_keys_and_an_empty_group_is_a_value():
    assert dict(leaves(VALUES)) == {"a.b": 1, "a.c": {}, "a.d.e": [{"f": 2}], "g": (1, 2), "h": None}
    assert dict(leaves({"b": 1}, "a")) == {"a.b": 1}


def test_flat_values_are_as_in_json_without_empty_groups():
    assert flat(VALUES) == {"a.b": 1, "a.d.e": [{"f": 2}], "g": [1, 2], "h": None}
    assert flat({}) == flat({}, "a") == {}
