"""Tables as users of vLLM-Ascend paste them into bug reports; no card was ever at hand."""

import pytest

from launch.machine import devices

HEAD = "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|"
COLUMNS = "| Chip{}| Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |"
NAME = "| {:<5} {:<20}| OK            | 89.1        32                0    / 0             |"
CHIP = "| {:<26}| 0000:C1:00.0  | 0           0    / 0          {}/ {}         |"
PROCESSES = """\
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
| 0       0                 | 1712733       | python                   | 48954                   |
| No running processes found in NPU 1                                                            |"""
RULE = "+===========================+===============+====================================================+"


def a2(names, total=65536):
    """Atlas A2 and older: one chip per card."""
    rows = [
        f"{NAME.format(number, name)}\n{CHIP.format(0, 3437, total)}\n{RULE}"
        for number, name in enumerate(names)
    ]
    return "\n".join([RULE, HEAD, COLUMNS.format(" " * 22), RULE, *rows, PROCESSES])


def a3(cards):
    """Atlas A3: two chips per card, with physical ids."""
    rows = [
        f"{NAME.format(number // 2, 'Ascend910')}\n{CHIP.format(f'{number % 2}     {number}', 61609, 65536)}"
        for number in range(2 * cards)
    ]
    return "\n".join([RULE, HEAD, COLUMNS.format("  Phy-ID              "), RULE, *rows, PROCESSES])


def installed(directory, info, listed=""):
    """An npu-smi that prints what is given."""
    (directory / "info").write_text(info)
    (directory / "listed").write_text(listed)
    tool = directory / "npu-smi"
    text = f'#!/bin/sh\nfile={directory}/info\n[ "$2" = -l ] && file={directory}/listed\n/bin/cat "$file"\n'
    tool.write_text(text)
    tool.chmod(0o755)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def statuses(needed, memory_gib=None, only_910=True):
    return {
        check.name: check.status for check in devices.checks(devices.look(), needed, memory_gib, only_910)
    }


def test_eight_suitable_cards(tools):
    installed(tools, a2(["910B3"] * 8))
    assert statuses(8, 58) == {"devices": "ok", "chip": "ok", "card memory": "ok"}
    assert statuses(16) == {"devices": "problem", "chip": "ok"}


def test_each_chip_of_an_a3_is_a_card(tools):
    installed(tools, a3(8), "Total Count : 8")
    assert devices.look().count == 16
    assert statuses(16, 64) == {"devices": "ok", "chip": "ok", "card memory": "ok"}


def test_too_little_memory_is_a_problem(tools):
    installed(tools, a2(["910B4"] * 8, 32768))
    assert statuses(8, 58)["card memory"] == "problem"
    assert statuses(8, 30)["card memory"] == "ok"


@pytest.mark.parametrize(
    ("name", "only_910", "status"),
    [
        ("910B1", True, "ok"),
        ("910_9362", True, "ok"),
        ("310P3", True, "problem"),
        ("910A", True, "problem"),
        ("310P3", False, "unknown"),
        ("910B", True, "unknown"),
        ("Ascend910", True, "unknown"),
    ],
)
def test_kinds_of_chips(tools, name, only_910, status):
    installed(tools, a2([name]))
    assert statuses(1, only_910=only_910)["chip"] == status


@pytest.mark.parametrize(
    ("listed", "status"), [("Total Count : 8", "ok"), ("Total Count : 4", "problem"), ("what?", "unknown")]
)
def test_cards_of_an_unknown_table_are_counted(tools, listed, status):
    installed(tools, "| something | else |", listed)
    result = statuses(8, 58)
    assert result["devices"] == status
    assert set(result.values()) <= {status, "unknown"}


def test_a_missing_or_broken_npu_smi_is_a_problem(tools):
    assert statuses(1) == {"devices": "problem"}
    tool = tools / "npu-smi"
    tool.write_text("no program")
    tool.chmod(0o755)
    assert statuses(1) == {"devices": "problem"}
