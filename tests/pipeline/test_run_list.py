"""The list of runs of `grpoflow ui`, used in Chromium: progress, sorting, filtering, choosing, the phone."""

import contextlib
import shutil
import time
import warnings

import pytest

from pipeline.store import history, leases
from pipeline.store.attempt import attempt
from pipeline.store.store import Key, Store
from pipeline.ui import live, watch
from tests.pipeline.test_ui import served
from tests.processes import wait_until
from tests.stages.fetch.settings import write_lines
from tests.stages.report.browser import Browser

RUNS = [f"2026010{number}-000000-{letter * 10}" for number, letter in enumerate("abcd", 1)]
LOW, HIGH, FAILED, RUNNING = RUNS
HOSTILE = "<img src=x onerror=alert(1)>"
KEYS = {stage: Key(stage, "0123456789abcdef" * 4) for stage in ("grpo", "evaluate")}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two finished runs, a failed one, and one in step 5 of 25 of grpo, whose evaluation takes 60 s."""
    root = tmp_path_factory.mktemp("ui") / "store"
    store, now = Store(root), time.time()
    root.mkdir()
    started = dict(config={"seed": 1, "train": {"beta": 0.1}}, artifacts={})
    for run, accuracy in ((LOW, 0.25), (HIGH, 0.75)):
        history.record(root, run, "started", overrides=[f"seed={accuracy}", f"store={root}"], **started)
        result = {"accuracy_sft": 0.125, "accuracy_grpo": accuracy, "gain": accuracy - 0.125, "prompts": 64}
        history.record(root, run, "finished", result=result)
    history.record(root, HIGH, "named", name="the best")
    history.record(root, HIGH, "pinned")
    history.record(root, FAILED, "started", overrides=[f"dataset.path={HOSTILE}"], **started)
    history.record(root, FAILED, "failed", stage="grpo", message=HOSTILE)
    artifacts = {stage: str(key) for stage, key in KEYS.items()}
    history.record(
        root, RUNNING, "started", overrides=[], config={}, artifacts=artifacts, expected_s={"evaluate": 60.0}
    )
    held = leases.take(root, RUNNING)
    with attempt(store, KEYS["grpo"]) as slot:
        rows = ({"step": i, "time_s": now - 10 + 2 * i, "reward": i / 10} for i in range(1, 6))
        write_lines(slot.work / "metrics.jsonl", *rows)
        line = {"time_s": now, "step": 5, "total": 25, "unit": "steps", "message": ""}
        write_lines(slot.logs / "progress.jsonl", line)
        (slot.logs / "spec.json").write_text("{}")
        yield root
    held.release()


def test_a_running_row_shows_stage_step_reward_and_the_time_left_of_the_run(store):
    page = live.overview(store)
    assert f'data-run="{RUNNING}"' in page
    assert '<span class="progress">grpo 5/25 steps reward 0.500 · ' in page
    left = watch.left_of_run(history.find(store, RUNNING), watch.rows(store, history.find(store, RUNNING)))
    assert left is not None and left.is_complete and 60 <= left.seconds <= 60 + 20 * 2


def test_the_head_of_a_live_page_says_when_it_began_and_how_long_it_takes(store):
    record = history.find(store, RUNNING)
    began = time.strftime("%H:%M", time.localtime(record.started))
    told = live._told(record, watch.rows(store, record))
    assert told.startswith(f"started {began}, ") and " so far, " in told and told.endswith(" left")
    record.started -= 90
    assert ", 1 min so far" in live._told(record, [])
    record.started -= 86_400 * 2
    assert f"{time.localtime(record.started).tm_mday} " in live._told(record, [])
    assert live._told(history.find(store, FAILED), []) == f"grpo: {HOSTILE}"


@pytest.fixture(scope="module")
def ui(store):
    with served(store) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = shutil.which("chromium")
    if chromium is None:
        warnings.warn("chromium is missing: the pages were NOT tested in a browser", stacklevel=2)
        pytest.skip("chromium is missing: apt-get install chromium")
    browser = Browser(chromium, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def page(ui, browser):
    with browser.page(f"http://127.0.0.1:{ui.port}/?token={ui.token}") as page:
        shown(page, "document.querySelector('#runs')")
        yield page
        assert page.messages == []
        assert all(
            address.startswith((f"http://127.0.0.1:{ui.port}/", "data:")) for address in page.addresses
        )


ROWS = "[...document.querySelectorAll('#runs tbody tr')]"
ORDER = f"{ROWS}.filter((row) => !row.hidden).map((row) => row.dataset.run)"
pytestmark = pytest.mark.browser


def shown(page, expression):
    """Wait until an expression is true in a page, which may be loading another one."""

    def value():
        with contextlib.suppress(AssertionError):
            return page.evaluate(f"Boolean({expression})")
        return False

    wait_until(value, 240)


def click(page, selector):
    page.evaluate(f"document.querySelector({selector!r}).click()")


def test_runs_are_sorted_by_a_click_and_stay_so_after_a_refresh(page):
    assert page.evaluate(ORDER) == RUNS[::-1]
    click(page, "th[data-key=after] button")
    assert page.evaluate(ORDER)[:2] == [HIGH, LOW]
    click(page, "th[data-key=after] button")
    assert page.evaluate(ORDER)[:2] == [LOW, HIGH]
    assert page.evaluate("document.querySelector('th[data-key=after]').ariaSort") == "ascending"
    page.send("Page.reload")
    shown(page, "document.readyState === 'complete' && document.querySelector('th[aria-sort=ascending]')")
    assert page.evaluate(ORDER)[:2] == [LOW, HIGH]


def test_runs_are_filtered_by_name_state_and_override(page):
    for text, left in (
        ("the BEST", [HIGH]),
        ("failed", [FAILED]),
        ("seed=0.25", [LOW]),
        ("pinned", [HIGH]),
        ("x=1", []),
    ):
        page.evaluate(f"document.getElementById('filter').value = {text!r}")
        page.evaluate("document.getElementById('filter').dispatchEvent(new Event('input', {bubbles: true}))")
        assert page.evaluate(ORDER) == left
    assert page.evaluate("document.getElementById('none').hidden") is False


def test_chosen_runs_are_compared(page, ui):
    for run, said in ((HIGH, "choose another run"), (LOW, "")):
        page.evaluate(f"document.querySelector('tr[data-run=\"{run}\"] input').click()")
        assert page.evaluate("document.getElementById('chosen').textContent").startswith(said)
    assert page.evaluate("document.getElementById('compare').textContent") == "Compare 2 runs"
    href = page.evaluate("document.getElementById('compare').href")
    status, _, text = ui.get(href.partition(str(ui.port))[2], ui.bearer())
    assert status == 200 and HIGH in text and LOW in text and "the best" in text
    assert ui.get(f"/compare?run={HIGH}", ui.bearer())[0] == 404
    assert ui.get(f"/compare?run={HIGH}&run={LOW}")[0] == 403


def test_the_list_is_asked_for_again_without_losing_what_is_typed(page, store):
    page.evaluate("document.getElementById('filter').focus()")
    page.key(*"fresh")
    assert page.evaluate(ORDER) == []
    new = "20260105-000000-eeeeeeeeee"
    history.record(store, new, "started", overrides=[], config={}, artifacts={})
    history.record(store, new, "named", name="fresh")
    shown(page, f"document.querySelector('tr[data-run=\"{new}\"]')")
    assert page.evaluate(ORDER) == [new]
    assert page.evaluate("document.activeElement.id") == "filter"


def test_a_run_is_named_and_pinned_in_the_list(page, store):
    row = f"document.querySelector('tr[data-run=\"{LOW}\"]')"
    page.evaluate(f"{row}.querySelector('.rename').click()")
    assert page.evaluate(f"document.activeElement === {row}.querySelector('.edit input')")
    page.key(*"slow ", "Escape")
    assert page.evaluate(f"{row}.querySelector('.edit input')") is None
    assert history.find(store, LOW).name is None, "Escape keeps the old name"
    page.key("Enter")  # the focus is on the button again
    page.key(*"slow <b>", "Enter")
    shown(page, f"{row}.querySelector('.name')?.textContent === 'slow <b>'")
    assert history.find(store, LOW).name == "slow <b>"
    page.evaluate(f"{row}.querySelector('.toggle').click()")
    shown(page, f"{row}.querySelector('.pin')")
    assert history.find(store, LOW).pinned
    assert page.evaluate(f"{row}.querySelector('.toggle').textContent") == "Unpin"
    page.evaluate(f"{row}.querySelector('.toggle').click()")
    shown(page, f"!{row}.querySelector('.pin')")
    assert not history.find(store, LOW).pinned
    page.evaluate(f"{row}.querySelector('.rename').click()")
    page.evaluate(f"{row}.querySelector('.edit input').value = 'last'")
    page.key("Enter")
    shown(page, "document.getElementById('refreshed').textContent.includes('last')")
    assert history.find(store, LOW).name == "slow <b>", (
        "a refused name changes nothing, and the page says why"
    )
    history.record(store, LOW, "named", name="")
    page.evaluate("document.getElementById('refreshed').textContent = ''")
    page.browser.events = [
        event for event in page.browser.events if event.get("method") != "Log.entryAdded"
    ]  # the browser logs that the server answered 400


def test_the_list_is_usable_with_the_keyboard(page):
    page.evaluate("document.getElementById('filter').focus()")
    reached = set()
    for _ in range(16):
        page.key("Tab")
        reached.add(
            page.evaluate("(document.activeElement.closest('th, td, select') ?? document.body).tagName")
        )
    assert {"SELECT", "TH", "TD"} <= reached
    page.evaluate("document.querySelector('th[data-key=after] button').focus()")
    page.key("Enter")
    assert page.evaluate(ORDER)[0] == HIGH


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_the_accuracy_without_scrolling_sideways(ui, browser, dark):
    with browser.page(f"http://127.0.0.1:{ui.port}/?token={ui.token}", width=390, dark=dark) as page:
        shown(page, "document.querySelector('#runs')")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        box = f"document.querySelector('tr[data-run=\"{HIGH}\"] .after').getBoundingClientRect()"
        assert page.evaluate(f"{box}.right") <= 390 and page.evaluate(f"{box}.width") > 30
        text = page.evaluate(f"document.querySelector('tr[data-run=\"{HIGH}\"] .after').innerText")
        assert text == "75.0 %"
        assert (
            page.evaluate(f"document.querySelector('tr[data-run=\"{RUNNING}\"] .progress').offsetHeight") > 0
        )


def test_without_scripts_the_list_is_there(ui, browser):
    address = f"http://127.0.0.1:{ui.port}/?token={ui.token}"
    with browser.page(address) as page:  # the token's page forwards
        shown(page, "document.querySelector('#runs')")
        page.send("Emulation.setScriptExecutionDisabled", value=True)
        page.go(f"http://127.0.0.1:{ui.port}/")
        page.send("Emulation.setScriptExecutionDisabled", value=False)
        assert page.evaluate("document.querySelector('.controls').hidden") is True
        assert HIGH in page.evaluate("document.body.innerText")
