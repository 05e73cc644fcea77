"""Pages with report.language=zh: no English is left in them except values, names of metrics, and log text."""

import ast
import json
import re
import shutil
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import pipeline.run.progress
import pipeline.ui
import stages.report
from pipeline.store import history
from pipeline.ui import live
from stages.base.keys import leaves
from stages.report import compare, sweep
from stages.report.config import ReportConfig
from stages.report.language import CHINESE, language, page_language, texts_of, translate
from stages.report.page import Origin, render
from stages.report.text import duration, moment
from tests.stages.fetch.settings import write_lines
from tests.stages.report.synthetic import (
    CONFIG,
    compared,
    groups_of_steps,
    sweep_of,
    with_a_stopped_point,
)
from tests.stages.report.test_browser import ALL_DRAWN, browser, written  # noqa: F401 (browser is a fixture)

PACKAGE, UI = Path(stages.report.__file__).parent, Path(pipeline.ui.__file__).parent
SETTINGS = ReportConfig(language="zh", title=None, samples=12, text_limit=1500)
SOURCES = [
    *(file for file in PACKAGE.iterdir() if file.suffix in (".py", ".html", ".js")),
    *UI.glob("*.py"),
    Path(pipeline.run.progress.__file__),
    Path(history.__file__),
]
TEXT = r'"((?:[^"\\]|\\.)*)"'
NAMES = {
    *(
        "GRPO",
        "KL",
        "Wilson",
        "Agresti",
        "Caffo",
        "Bonferroni",
        "token",
        "nat",
        "k",
        "csv",
        "png",
        "json",
        "jsonl",
        "plotly",
        "js",
        "min",
        "worker",
    ),
    *("x", "y", "PNG", "CSV", "Esc", "UTC", "GiB", "MiB", "KiB", "B", "s", "grpoflow", "ui", "gc", "report"),
    *("metrics", "completions", "manifest", "mean", "g", "n", "pass", "number", "U"),
}
"""Names and symbols that Chinese texts use as they are."""


def literals(file):
    """Yield the texts that a source file gives to `translate`, or to a note of the report."""
    source = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        for found in re.finditer(rf"translate\({TEXT}(?: if [^\"]*? else {TEXT})?", source):
            yield from (text for text in found.groups() if text)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("translate", ".note")):
            first = node.args[0]
            for each in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                if isinstance(each, ast.Constant):
                    yield each.value


def test_every_text_has_a_translation_and_every_translation_a_text():
    sources = [file for file in SOURCES if file.name != "language.py"]
    used = {text for file in sources for text in literals(file)}
    assert len(used) > 250
    assert sorted(used - set(CHINESE)) == []
    # A text that is given by a name stands elsewhere; a long one stands in several literals.
    everything = re.sub(r'"\s+f?"', "", "".join(file.read_text(encoding="utf-8") for file in sources))
    stale = [text for text in CHINESE if text not in used and text not in everything]
    assert [text for text in stale if text.lower() not in everything] == []


@pytest.mark.parametrize("english", CHINESE, ids=lambda text: text[:40])
def test_a_translation_has_the_same_places_for_values(english):
    places = [sorted(re.findall(r"\{(\w+)\}", text)) for text in (english, CHINESE[english])]
    assert places[0] == places[1]


def strings(value):
    """Yield all texts of a JSON value, keys too."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings(each)
    elif isinstance(value, list):
        yield json.dumps(value)
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def letters(text):
    """Return the words of a text, without those that contain digits."""
    return " ".join(re.findall(r"(?<!\w)[A-Za-z]+(?!\w)", text.replace("_", " "), re.ASCII))


def values_of(directories):
    """Return the letters of every value in the files of artifacts, whole and line by line."""
    texts = set()
    for directory in directories:
        for file in directory.iterdir():
            lines = file.read_text(encoding="utf-8").splitlines()
            for each in lines if file.suffix == ".jsonl" else ["".join(lines)]:
                texts |= set(strings(json.loads(each)))
    texts |= {each for text in texts for each in (*text.splitlines(), text.removeprefix("reward/"))}
    texts |= {"null", "true", "false"}
    return {letters(text) for text in texts} | {directory.name for directory in directories}


def english_left(texts, values):
    """Return what is neither Chinese nor a value.

    A text without Chinese must be a value as a whole; one with Chinese may contain values and NAMES.
    """
    words = {word for value in values for word in value.split()}
    left = []
    for text in texts:
        if all(letters(part) in {"", *values, *NAMES} for part in text.split(" · ")):
            continue
        if not re.search(r"[\u4e00-\u9fff]", text) or set(letters(text).split()) - words - NAMES:
            left.append(text)
    return left


VISIBLE = """(() => {
    const texts = new Set(), walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const parent = walk.currentNode.parentElement;
        if (!parent.closest('script, style, noscript, template, pre'))
            texts.add(walk.currentNode.textContent.trim());
    }
    for (const node of document.querySelectorAll('noscript'))
        texts.add(node.textContent.replace(/<[^>]*>/g, ''));
    for (const name of ['aria-label', 'title', 'placeholder', 'alt', 'aria-valuetext'])
        for (const node of document.querySelectorAll(`[${name}]`)) texts.add(node.getAttribute(name));
    texts.add(document.title);
    return [...texts];
})()"""


def report_of(run, language):
    write_lines(run["grpo"] / "completions.jsonl", *groups_of_steps(3))
    results = json.loads((run["evaluate"] / "result.json").read_text())
    results["outcomes"] = {"fixed": 250, "broken": 19, "both_right": 493, "both_wrong": 238}
    (run["evaluate"] / "result.json").write_text(json.dumps(results))
    origin = Origin("20260101-000000-aaaa", "my run", "grpoflow run seed=1", {"grpo": "../grpo/stage.log"})
    defaults = {"train": {"steps": 1}}
    return render(
        run, replace(SETTINGS, language=language), began=1_760_000_001.0, origin=origin, defaults=defaults
    )


KNOWN = {letters(text) for text in (
    "20260101-000000-aaaa", "my run", "grpoflow run seed=1", "train.steps", "report", "result.json",
    "grpoflow report 20260101-000000-aaaa --compare RUN", "seed=0", "seed=1", "seed=2", "plotly-notifier",
    "train.logged_completions",
)}  # fmt: skip


@pytest.mark.browser
def test_a_chinese_report_has_no_english_text_left(run, tmp_path, browser):  # noqa: F811
    values = values_of(run.values()) | KNOWN | {letters(key) for key, _ in leaves(CONFIG)}
    with browser.page(written(tmp_path, report_of(run, "zh"))) as page:
        page.until(ALL_DRAWN)
        page.evaluate("document.querySelector('#step-browser .choice button:nth-child(3)').click()")
        assert "\n".join(english_left(page.evaluate(VISIBLE), values)) == ""
        assert page.evaluate("document.documentElement.lang") == "zh-CN" and page.messages == []
    with browser.page(written(tmp_path, report_of(run, "en"))) as page:
        page.until(ALL_DRAWN)
        left = english_left(page.evaluate(VISIBLE), values)
        assert {"After GRPO", "Zoom in", "Longest first", "Stages and time"} <= set(left), (
            "the check finds it"
        )
        assert len(left) > 100


@pytest.mark.browser
def test_a_chinese_sweep_and_comparison_have_no_english_text_left(tmp_path, browser):  # noqa: F811
    rows = {key for row in sweep_of(8)["metrics"]["grpo/b0"] for key in row}
    values = {letters(key) for key in rows} | KNOWN
    values |= {letters(text) for text in (
        "train.beta × report.title", "train.beta", "report.title", "grpoflow sweep seed=0,1", "run 0", "seed",
        "grpoflow run report.title=run_1", "train.beta=0.00 report.title=run_1", "report.title=run_0",
        "train.beta=0.02 report.title=run_5", "grpoflow run report.title=run_5",
        "reward ran away",
    )}  # fmt: skip
    with page_language("zh"):
        stopped = with_a_stopped_point(sweep_of(8))
        pages = {"sweep": sweep.render(**stopped), "compare": compare.render(compared(3))}
    for source in pages.values():
        with browser.page(written(tmp_path, source)) as page:
            page.until(ALL_DRAWN)
            assert "\n".join(english_left(page.evaluate(VISIBLE), values)) == ""
            assert page.messages == []


def test_the_list_of_runs_has_the_language_of_the_newest_run(tmp_path):
    for run, chosen in (("one", "zh"), ("two", "en"), ("three", "zh")):
        config = {"report": {**asdict(SETTINGS), "language": chosen}}
        history.record(tmp_path, run, "started", overrides=[], config=config, artifacts={})
        history.record(tmp_path, run, "failed", stage="grpo", message="loss is NaN")
        page = live.overview(tmp_path)
        assert ("<h1>运行</h1>" in page) is (chosen == "zh") and ("<h1>Runs</h1>" in page) is (chosen == "en")
        page = live.report(tmp_path, run)[0]
        assert ('<html lang="zh-CN">' in page) is (chosen == "zh") and "loss is NaN" in page
    assert "2 次运行" in live.comparison(tmp_path, ["one", "two"])
    assert "2 runs" in live.comparison(tmp_path, ["two", "one"])


def test_a_language_holds_in_its_block_and_thread_only():
    seen = []
    with page_language("zh"):
        other = threading.Thread(target=lambda: seen.append((language(), duration(75))))
        other.start()
        other.join()
        with pytest.raises(ZeroDivisionError), page_language("en"):
            1 / 0  # noqa: B018 (an error inside a block)
        assert language() == "zh" and duration(75) == "1 分 15 秒" and duration(7500) == "2 小时 05 分"
        assert moment(0) == "1970 年 1 月 1 日 00:00 UTC" and translate("a stage's name") == "a stage's name"
        assert texts_of('translate("Copy")') == {"Copy": "复制"}
    assert seen == [("en", "1 min 15 s")] and texts_of('translate("Copy")') == {}


@pytest.fixture(autouse=True)
def _needs_no_program(request):
    if request.node.get_closest_marker("browser") and shutil.which("chromium") is None:
        pytest.skip("chromium is missing: apt-get install chromium")
