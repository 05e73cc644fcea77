import pytest

from launch.machine.environment import problems

GOOD = {"mindspore": "2.7.0", "numpy": "1.26.4", "safetensors": "0.7.0"}


def test_the_pinned_versions_are_accepted():
    assert problems(GOOD.get) == []


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("mindspore", None, "mindspore not installed"),
        ("mindspore", "2.9.0", "mindspore 2.9.0: must be mindspore==2.7.0"),
        ("numpy", "2.1.0", "numpy 2.1.0: must be numpy<2"),
        ("safetensors", "0.8.0", "safetensors 0.8.0: must be safetensors>=0.5,<0.8"),
        ("safetensors", "0.4.5", "safetensors 0.4.5: must be safetensors>=0.5,<0.8"),
    ],
)
def test_versions_known_to_break_are_reported(package, version, message):
    result = problems({**GOOD, package: version}.get)
    assert len(result) == 1
    assert result[0].startswith(message)
    assert "pip install" in result[0]
