"""The pages in a real browser, used as a reader does."""

import base64
import csv
import io
import itertools
import json
import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import axe_core_python
import pytest

from stages.report import compare
from stages.report.charts import PLOTLY, plotly
from stages.report.config import ReportConfig
from stages.report.page import render as render_run
from stages.report.sweep import render
from tests.stages.fetch.settings import write_lines
from tests.stages.report.browser import Browser
from tests.stages.report.synthetic import compared, groups_of_steps, metrics, sweep_of

pytestmark = pytest.mark.browser
AXE = Path(axe_core_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
SETTINGS = ReportConfig(language="en", title=None, samples=100, text_limit=1500)
ALL_DRAWN = "[...document.querySelectorAll('figure[data-chart]')].every((figure) => figure.dataset.drawn)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = shutil.which("chromium")
    if program is None:
        warnings.warn("chromium is missing: the pages were NOT tested in a browser", stacklevel=2)
        pytest.skip("chromium is missing: apt-get install chromium")
    started = Browser(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


def written(directory, page):
    """Write a page and what draws its charts; return its address."""
    (directory / PLOTLY).write_bytes(plotly())
    file = directory / "index.html"
    file.write_text(page, encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def run_page(run, tmp_path):
    write_lines(run["grpo"] / "completions.jsonl", *groups_of_steps(6))
    return written(tmp_path, render_run(run, SETTINGS))


@pytest.fixture(params=["run", "sweep", "compare"])
def any_page(request, tmp_path):
    """The page of a run, of a sweep, or of a comparison."""
    if request.param == "run":
        return request.getfixturevalue("run_page")
    return written(
        tmp_path, render(**sweep_of(8)) if request.param == "sweep" else compare.render(compared(3))
    )


def barriers(page):
    """What axe-core finds against WCAG 2.1 A and AA, contrast among it."""
    page.evaluate(AXE + ";0")
    rules = "{type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}"
    found = page.evaluate(f"axe.run(document, {{runOnly: {rules}, resultTypes: ['violations']}})")
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in found["violations"]]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_page_is_local_quiet_accessible_and_fits_its_window(any_page, browser, width, dark):
    with browser.page(any_page, width=width, dark=dark) as page:
        page.until(ALL_DRAWN)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert barriers(page) == []
        shade = "Number(getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0])"
        assert (page.evaluate(shade) < 60) is dark
        assert [
            address for address in page.addresses if not address.startswith(("file:///", "blob:", "data:"))
        ] == []
        assert {address.rpartition("/")[2] for address in page.addresses if address.startswith("file")} <= {
            "index.html", PLOTLY
        }  # fmt: skip
        assert page.messages == []


def test_pages_are_sound(any_page, browser):
    measure = """(() => {
        const find = (selector) => [...document.querySelectorAll(selector)];
        const all = find('*'), plotlys = /^(def|top|clip|mode|leg)/;
        const ids = all.map((node) => node.id).filter((id) => id && !plotlys.test(id));
        const levels = find('h1, h2, h3, h4').map((node) => Number(node.tagName[1]));
        const leads = (href) => href.startsWith('#') ? document.getElementById(href.slice(1))
            : /^((\\.\\.\\/)+report\\/|table\\.csv)/.test(href);
        const tops = find('.grid').map((grid) =>
            [...grid.children].slice(0, 2).map((panel) => panel.getBoundingClientRect().top));
        const problems = {
            ids: ids.length - new Set(ids).size,
            handlers: all.filter((node) => /(^| )on/.test(node.getAttributeNames().join(' '))).length,
            elements: find('iframe, object, embed, base, form, [srcset]').length,
            sources: find('[src]').filter((node) => node.getAttribute('src') !== 'plotly.min.js').length,
            links: find('main a').filter((node) => !leads(node.getAttribute('href'))).length,
            once: ['h1', 'main', 'body > nav'].filter((name) => find(name).length != 1).length,
            levels: levels.filter((level, i) => i && level > levels[i - 1] + 1).length,
            captions: find('table').length - find('table > caption').length,
            heights: tops.filter(([left, right]) => left != (right ?? left)).length + (tops.length == 0),
        };
        return Object.entries(problems).filter(([, n]) => n).join(' ');
    })()"""
    with browser.page(any_page) as page:
        assert page.evaluate(measure) == ""


def test_without_scripts_or_without_plotly_the_numbers_are_there(any_page, browser):
    tables = "[...document.querySelectorAll('details.numbers')].filter((one) => one.open).length"
    with browser.page(any_page, scripts=False) as page:
        tree = page.send("DOMSnapshot.captureSnapshot", computedStyles=["display"])["strings"]
        assert "step" in " ".join(tree).lower() and any("Numbers" in text for text in tree)
        layout = page.send("Accessibility.getFullAXTree")["nodes"]
        names = {node["name"]["value"] for node in layout if node.get("role", {}).get("value") == "table"}
        assert any(name.startswith("Reward: ") for name in names), names
    Path(any_page.removeprefix("file://")).with_name(PLOTLY).unlink()
    with browser.page(any_page) as page:
        assert page.evaluate(tables) >= 4
        assert page.evaluate("document.querySelector('.no-plotly').checkVisibility()")


class Chart:
    """One chart of an open page."""

    def __init__(self, page, name):
        self.page, self.figure = page, f"document.querySelector('[data-chart={name}]')"
        page.evaluate(f"{self.figure}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        page.until(f"{self.figure}.dataset.drawn && {self.plot}._fullLayout?.xaxis")

    @property
    def plot(self):
        return f"{self.figure}.querySelector('.plot')"

    def range(self, axis="xaxis"):
        return self.page.evaluate(f"[...{self.plot}._fullLayout.{axis}.range]")

    def lines(self):
        """Name -> x and y of each visible line that has a name."""
        shown = f"{self.plot}._fullData.filter((trace) => trace.meta && trace.visible === true)"
        return dict(self.page.evaluate(f"{shown}.map((trace) => [trace.meta, [[...trace.x], [...trace.y]]])"))

    def press(self, name):
        buttons = f"[...{self.figure}.querySelectorAll('button')]"
        self.page.evaluate(f"{buttons}.find((one) => one.textContent.trim() === {name!r}).click()")

    def saved(self, name):
        """Press a button; return the name and the content of the file that it saves."""
        self.page.evaluate("""
            window.saved = null;
            HTMLAnchorElement.prototype.click = function () {
                window.saved = [this.download, this.href];
            };
            window.made ??= URL.createObjectURL;
            URL.createObjectURL = (blob) => { window.blob = blob; return window.made(blob); };
        """)
        self.press(name)
        file, address = self.page.until("window.saved")
        if address.startswith("data:"):
            return file, base64.b64decode(address.partition("base64,")[2])
        return file, self.page.evaluate("window.blob.text()").encode()

    def box(self):
        area = f"{self.plot}.querySelector('.nsewdrag').getBoundingClientRect()"
        return self.page.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({area})")


def wait(page):
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")


def test_a_chart_zooms_with_the_mouse_and_the_keyboard(run_page, browser):
    with browser.page(run_page) as page:
        chart = Chart(page, "kl_to_the_reference")
        whole = chart.range()
        x, y, width, height = chart.box()
        page.drag((x + width / 4, y + height / 2), (x + width / 2, y + height / 2 + 2))
        page.until(f"{chart.plot}._fullLayout.xaxis.range[1] < 50")
        low, high = chart.range()
        assert low == pytest.approx(whole[0] + (whole[1] - whole[0]) / 4, abs=1.5)
        assert high == pytest.approx(whole[0] + (whole[1] - whole[0]) / 2, abs=1.5)
        page.evaluate(f"{chart.plot}.focus()")
        page.key("0")
        page.until(f"{chart.plot}._fullLayout.xaxis.range[1] > 70")
        assert chart.range() == pytest.approx(whole)
        page.key("+", "+")
        page.until(f"{chart.plot}._fullLayout.xaxis.range[1] < 60")
        assert (chart.range()[1] - chart.range()[0]) * 4 == pytest.approx(whole[1] - whole[0])
        chart.press("Reset")
        page.until(f"{chart.plot}._fullLayout.xaxis.range[1] > 70")
        page.key("Home", "ArrowRight", "ArrowRight")
        rows = metrics()
        said = page.evaluate(f"{chart.figure}.querySelector('.readout').textContent")
        assert said.startswith("step 3: ") and page.messages == []
        page.evaluate("document.querySelector('.chart-controls input').focus()")
        page.key("Home")  # no smoothing
        page.evaluate(f"{chart.plot}.focus()")
        page.key("End")
        said = page.evaluate(f"{chart.figure}.querySelector('.readout').textContent")
        assert said.startswith("step 80: ")
        assert float(said.split()[-1]) == pytest.approx(rows[-1]["kl"], rel=1e-3)


def test_pointing_at_a_step_shows_all_lines_and_the_legend_hides_one(run_page, browser):
    with browser.page(run_page) as page:
        chart = Chart(page, "reward_by_function")
        x, y, width, height = chart.box()
        page.mouse("mouseMoved", x + width / 2, y + height / 2)
        texts = f"[...{chart.figure}.querySelectorAll('.hoverlayer text')]"
        shown = f"{texts}.map((text) => text.textContent).join(' ')"
        text = page.until(f"/accuracy/.test({shown}) && {shown}")
        assert re.match(r"step \d+ ", text), text
        assert re.search(r"accuracy : \d", text) and re.search(r"answer format : \d", text), text
        assert [*chart.lines()] == ["accuracy", "answer format"]
        drawn = f"{chart.plot}.querySelectorAll('.scatterlayer .trace').length"
        before = page.evaluate(drawn)
        toggle = f"{chart.figure}.querySelector('.legend button')"
        page.evaluate(f"{toggle}.focus()")
        page.key(" ")
        page.until(f"{toggle}.getAttribute('aria-pressed') === 'false'")
        wait(page)
        assert [*chart.lines()] == ["answer format"]
        assert page.evaluate(drawn) < before, "its band and its measured values are hidden with it"


def test_the_smoothing_says_to_which_lines_it_applies(run, tmp_path, browser):
    write_lines(run["grpo"] / "metrics.jsonl", *metrics(30))  # sft has more
    controls = "document.querySelector('.chart-controls')"
    shown, slider = f"{controls}.querySelector('output').textContent", f"{controls}.querySelector('input')"
    with browser.page(written(tmp_path, render_run(run, SETTINGS))) as page:
        chart = Chart(page, "reward")
        (name,) = chart.lines()
        assert page.evaluate(shown) == "0.60 for lines of 40 points or more"
        measured = [row["reward"] for row in metrics(30)]
        assert chart.lines()[name][1] == pytest.approx(measured, rel=1e-4)
        page.evaluate(f"{slider}.value = 0.5; {slider}.dispatchEvent(new Event('input'))")
        wait(page)
        assert page.evaluate(shown) == "0.50"
        assert chart.lines()[name][1] != pytest.approx(measured, rel=1e-2)


def test_smoothing_is_tensorboards_and_the_x_axis_counts_tokens_and_time(run_page, browser):
    rows = metrics()
    with browser.page(run_page) as page:
        chart = Chart(page, "reward")
        (name,) = chart.lines()
        last, weight, expected = 0.0, 0.0, []
        for row in rows:  # the debiased moving average of TensorBoard
            last, weight = 0.6 * last + 0.4 * row["reward"], 0.6 * weight + 0.4
            expected.append(last / weight)
        assert chart.lines()[name][1] == pytest.approx(expected, rel=1e-4)
        slider = "document.querySelector('.chart-controls input')"
        page.evaluate(f"{slider}.value = 0; {slider}.dispatchEvent(new Event('input'))")
        wait(page)
        assert chart.lines()[name][1] == pytest.approx([row["reward"] for row in rows], rel=1e-4)
        select = "document.querySelector('.chart-controls select')"
        for axis, last in (
            ("tokens", sum(row["tokens_per_s"] * row["step_s"] for row in rows)),
            ("seconds", (rows[-1]["time_s"] - rows[0]["time_s"] + rows[0]["step_s"]) / 60),
        ):
            page.evaluate(f"{select}.value = '{axis}'; {select}.dispatchEvent(new Event('change'))")
            wait(page)
            assert chart.lines()[name][0][-1] == pytest.approx(last, rel=1e-4), axis
        page.go(run_page)  # what was chosen is kept, because a live page reloads itself
        assert page.evaluate(f"{select}.value") == "seconds"


def test_a_logarithmic_axis_and_files_of_a_chart(run_page, browser):
    with browser.page(run_page) as page:
        chart = Chart(page, "kl_to_the_reference")
        chart.press("Log")
        page.until(f"{chart.plot}._fullLayout.yaxis.type === 'log'")
        assert chart.range("yaxis")[0] < -2, "powers of ten"
        name, content = chart.saved("PNG")
        assert name == "kl_to_the_reference.png" and content.startswith(b"\x89PNG") and len(content) > 10_000
        name, content = chart.saved("CSV")
        lines = [*csv.DictReader(io.StringIO(content.decode()))]
        assert name == "kl_to_the_reference.csv"
        assert [*lines[0]][:3] == ["step", "tokens", "seconds"]
        for line, row in zip(lines, metrics(), strict=True):
            assert float(line["KL to the reference: kl"]) == pytest.approx(row["kl"], rel=1e-4)
        assert page.messages == []


def text_of(page, selector):
    return page.evaluate(f"[...document.querySelectorAll({selector!r})].map((node) => node.textContent)")


def press(page, holder, name):
    buttons = f"[...document.querySelectorAll('{holder} button')]"
    page.evaluate(f"{buttons}.find((one) => one.textContent.startsWith({name!r})).click()")


def test_completions_are_read_group_by_group(run_page, browser):
    rows = groups_of_steps(6)
    with browser.page(run_page) as page:
        slider = "document.querySelector('#step-browser input[type=range]')"
        page.evaluate(f"{slider}.focus()")
        page.key("Home", "ArrowRight")
        (said,) = text_of(page, "#step-browser [role=status]")
        assert said.startswith("32 of 32 completions of step 2, in 4 groups.")
        step = [row for row in rows if row["step"] == 2]
        cards = text_of(page, "#step-browser .completion")
        assert len(cards) == len(step)
        for card, row in zip(cards, step, strict=True):
            verdict = "right" if row["parts"]["number"] else "wrong"
            assert card.startswith(f"{verdict}reward ") and row["completion"] in card
            assert f"{row['length']} tokens" in card and ("cut" in card) is row["cut"]
            sign = "+" if row["advantage"] > 0 else "−"
            assert f"advantage {sign}{abs(row['advantage']):.3g}" in card
        answers = text_of(page, "#step-browser mark.answer")
        assert answers == [row["completion"].rpartition("#### ")[2] for row in step]
        groups = text_of(page, "#step-browser .badge")
        right = [sum(row["parts"]["number"] for row in step[i : i + 8]) for i in range(0, 32, 8)]
        assert groups == [f"{count:.0f} of 8 right · 8 completions" for count in right]
        for name, count in (
            ("Wrong", sum(not row["parts"]["number"] for row in step)),
            ("Right", sum(bool(row["parts"]["number"]) for row in step)),
            ("Cut", sum(row["cut"] for row in step)),
        ):
            press(page, "#step-browser", name)
            assert len(text_of(page, "#step-browser .completion")) == count, name
        press(page, "#step-browser", "All")
        field = "document.querySelector('#step-browser input[type=search]')"
        page.evaluate(f"{field}.value = 'STEP 5'; {field}.dispatchEvent(new Event('input'))")
        assert text_of(page, "#step-browser .completion") == []
        press(page, "#step-browser", "▶")  # the next step with a match
        assert page.evaluate(f"{slider}.getAttribute('aria-valuetext')") == "step 5"
        assert "step 5" in " ".join(text_of(page, "#step-browser mark.found"))
        press(page, "#step-browser", "Longest first")
        lengths = [
            int(re.search(r"(\d+) tokens", card)[1]) for card in text_of(page, "#step-browser .completion")
        ]
        assert lengths[:8] == sorted(lengths[:8], reverse=True)
        page.evaluate(f"{field}.value = ''; {field}.dispatchEvent(new Event('input'))")
        press(page, "#step-browser", "Logged step with the longest on average")
        lengths_of = {row["step"]: [] for row in rows}
        for row in rows:
            lengths_of[row["step"]].append(row["length"])
        longest = max(lengths_of, key=lambda step: sum(lengths_of[step]) / len(lengths_of[step]))
        assert page.evaluate(f"{slider}.getAttribute('aria-valuetext')") == f"step {longest}"
        (first, *_) = text_of(page, "#step-browser .completion")
        assert f"{max(lengths_of[longest])} tokens" in first, "groups are sorted, too"


def test_answers_before_and_after_are_filtered_by_what_training_changed(run_page, browser):
    with browser.page(run_page) as page:
        buttons = text_of(page, "#held-out-browser .choice button")
        assert buttons == ["All 20", "Fixed 7", "Both right 13"]
        press(page, "#held-out-browser", "Fixed")
        assert set(text_of(page, "#held-out-browser .badge")) == {"fixed"}
        assert len(text_of(page, "#held-out-browser article")) == 7
        press(page, "#held-out-browser", "All")
        press(page, "#held-out-browser", "Show more")
        assert len(text_of(page, "#held-out-browser article")) == 20
        counts = text_of(page, "#result .counts tr")
        assert counts == ["fixed735.0 %", "broken00.0 %", "both right1365.0 %", "both wrong00.0 %"]
        page.evaluate("document.querySelector('#result .counts a.fixed').click()")
        assert set(text_of(page, "#held-out-browser .badge")) == {"fixed"}, "a count leads to its prompts"


def test_the_graph_leads_to_artifacts_and_logs(run_page, browser):
    with browser.page(run_page) as page:
        links = page.evaluate(
            "[...document.querySelectorAll('svg.graph a')].map((link) => link.getAttribute('href'))"
        )
        names = text_of(page, "svg.graph .name")
        assert names[0] == "fetch" and names[-1] == "report"
        assert links == [f"#artifact-{name}" for name in names[:-1]], "the report itself is this page"
        there = f"{json.dumps(links)}.map((link) => document.getElementById(link.slice(1)) !== null)"
        assert all(page.evaluate(there))


def test_three_runs_are_compared_by_what_differs(tmp_path, browser):
    with browser.page(written(tmp_path, compare.render(compared(3)))) as page:
        chart = Chart(page, "reward")
        assert [*chart.lines()] == ["seed=0", "seed=1", "seed=2"]
        named = f"{chart.plot}._fullData.filter((trace) => trace.meta)"
        looks = f"{named}.map(({{line}}) => [line.color, line.dash].join())"
        assert len(set(page.evaluate(looks))) == 3
        toggle = f"{chart.figure}.querySelectorAll('.legend button')[1]"
        page.evaluate(f"{toggle}.click()")
        wait(page)
        assert [*chart.lines()] == ["seed=0", "seed=2"]
        assert [*Chart(page, "entropy").lines()] == ["seed=0", "seed=2"], "hidden in all charts"
        order = text_of(page, "main h2")
        assert order[:2] == ["What differs", "Results"]
        heads = text_of(page, "#results thead th")
        assert heads[:3] == ["Run", "Greedy, before GRPO", "Greedy, after"]
        names = "#results tbody th a"
        press(page, "#results", "Greedy, after")
        assert text_of(page, names) == ["seed=2", "seed=1", "seed=0"]
        field = "document.querySelector('#results input[type=search]')"
        page.evaluate(f"{field}.value = 'seed=1'; {field}.dispatchEvent(new Event('input'))")
        assert text_of(page, names) == ["seed=1"]
        assert page.messages == []


def test_parallel_coordinates_show_the_points_with_a_chosen_value(tmp_path, browser):
    with browser.page(written(tmp_path, render(**sweep_of(8)))) as page:
        plot = "document.querySelector('#parallel .plot')"
        page.until(f"{plot}._fullData?.length")
        assert page.evaluate(f"{plot}._fullData.length") == 6, "a line per finished point"
        selects = "[...document.querySelectorAll('#parallel select')]"
        labels = text_of(page, "#parallel label")
        at = next(i for i, label in enumerate(labels) if label.startswith("train.beta"))
        page.evaluate(
            f"{selects}[{at}].selectedIndex = 1; {selects}[{at}].dispatchEvent(new Event('change'))"
        )
        wait(page)
        drawn = page.evaluate(
            f"{plot}._fullData.filter((trace) => trace.opacity > 0.1).map((trace) => trace.text)"
        )
        assert sorted(re.findall(r"point (\d)", " ".join(drawn))) == ["0", "1"], "train.beta=0.00"
        assert text_of(page, "#parallel [role=status]") == ["2 of 6 points, accuracy 50.0 % to 93.8 %"]


BOXES = """(() => {
    const selector = '#parallel .xtick text, #parallel .annotation-text, #parallel .plot';
    return [...document.querySelectorAll(selector)].map((node) => {
        const {left, top, right, bottom} = node.getBoundingClientRect();
        return [node.textContent, left, top, right, bottom];
    });
})()"""
LONG = {
    "rollout.max_completion_length": ("1024", "2048"),
    "train.importance_sampling_level": ("token", "sequence"),
    "reward.functions": ("[number,answer_format]", "[number]"),
    "train.lr": ("0.00005", "0.0001", "0.0002"),
    "dataset.path": ("/data/sets/gsm8k/main", "/data/sets/deepscaler/main"),
}


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_parallel_coordinates_are_whole_and_do_not_overlap(tmp_path, browser, width):
    inputs = sweep_of(14)

    def chosen(number):
        return {
            key: values[number // place % len(values)] for place, (key, values) in enumerate(LONG.items(), 1)
        }

    inputs["sweep_points"] = [replace(point, chosen=chosen(point.number)) for point in inputs["sweep_points"]]
    with browser.page(written(tmp_path, render(**inputs)), width=width) as page:
        plot = "document.querySelector('#parallel .plot')"
        page.until(f"{plot}._fullData?.length")
        (_, *plot), *boxes = page.evaluate(BOXES)
        assert {text for text, *_ in boxes} >= {*LONG, "token", "0.0001", "accuracy after"}
        cut = [
            text
            for text, *box in boxes
            if box[0] < plot[0] or box[1] < plot[1] or box[2] > plot[2] or box[3] > plot[3]
        ]
        assert cut == []
        overlapping = [
            (one, other)
            for (one, *a), (other, *b) in itertools.combinations(boxes, 2)
            if min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 1
        ]
        assert overlapping == []


@pytest.mark.parametrize("kind", ["points", "against", "results"])
def test_a_phone_shows_accuracies_before_keys_without_scrolling_sideways(tmp_path, browser, kind):
    source = compare.render(compared(3)) if kind == "results" else render(**sweep_of(8))
    right = f"""(() => {{
        const table = document.querySelector('#{kind} table');
        const heads = [...table.querySelectorAll('thead th')];
        const column = heads.findIndex((head) => head.textContent === 'Greedy, after');
        return [...table.rows].map((row) => row.cells[column].getBoundingClientRect().right);
    }})()"""
    with browser.page(written(tmp_path, source), width=390) as page:
        edges = page.evaluate(right)
        assert len(edges) > 3 and max(edges) <= 390


def test_completions_show_the_weight_of_each_reward_function(run, tmp_path, browser):
    rows = [
        {**row, "parts": {"accuracy": row["parts"]["number"], "answer_format": 1.0}}
        for row in groups_of_steps(2)
    ]
    write_lines(run["grpo"] / "completions.jsonl", *rows)
    with browser.page(written(tmp_path, render_run(run, SETTINGS))) as page:
        cards = text_of(page, "#step-browser .completion")
        assert len(cards) == 32 and all(
            re.search(r"accuracy [01] \(weight 1\) · answer format 1 \(weight 0\.2\)", card) for card in cards
        )
        (first, *_) = text_of(page, "#held-out-browser h4")
        assert "reward 0.2 · accuracy 0 (weight 1) · answer format 1 (weight 0.2)" in first


def test_hostile_completions_stay_text(run, tmp_path, browser):
    owned = "document.title = 'owned'"
    texts = [
        f"<script>{owned}</script>", f'<img src=x onerror="{owned}">', f"]]><svg onload=\"{owned}\">",
        f"</pre></article></main><h1>free</h1><script>{owned}</script>", f"javascript:{owned}",
        "\u202egnp.exe", "x" * 1_000_000, "<b>" * 30_000, "\u0301" * 5000, "</script><!--<script>",
        "a\x1b[31m\x00b",
    ]  # fmt: skip
    for stage, name in (("evaluate", "samples.jsonl"), ("grpo", "completions.jsonl")):
        keys = ("prompt", "solution", "before", "after", "completion")
        rows = [
            {"step": 1, "length": 5, "parts": {text[:50]: 1.0}, **dict.fromkeys(keys, text)} for text in texts
        ]
        write_lines(run[stage] / name, *rows)
    drawn = [{"step": i, **{f"reward/{text[:50]}": 1.0 for text in texts}} for i in range(3)]
    write_lines(run["grpo"] / "metrics.jsonl", *drawn)
    limits = ReportConfig(language="en", title=texts[0], samples=20, text_limit=3000)
    with browser.page(written(tmp_path, render_run(run, limits))) as page:
        page.until(ALL_DRAWN)
        found = "document.querySelectorAll('.sample script, .sample img, .sample b, .chart img, h1').length"
        assert page.evaluate(found) == 1, "the page's own h1"
        assert page.evaluate("document.title") != "owned" and page.messages == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert {address.partition(":")[0] for address in page.addresses} == {"file"}
        cards = text_of(page, "#step-browser pre")
        assert any(texts[3] in card for card in cards) and any("‹U+202E›gnp.exe" in card for card in cards)
        assert any("characters left out" in card for card in cards)
        x, y, width, height = Chart(page, "reward_by_function").box()
        page.mouse("mouseMoved", x + width / 2, y + height / 2)
        wait(page)
        assert page.evaluate("document.querySelectorAll('.hoverlayer a').length") == 0


def test_a_sweep_sorts_by_any_column(tmp_path, browser):
    numbers = "[...document.querySelectorAll('#points tbody th')].map((cell) => cell.innerText).join('')"
    with browser.page(written(tmp_path, render(**sweep_of(8)))) as page:
        orders = [page.evaluate(numbers)]
        for name in ("Point", "Point", "report.title", "report.title", "Gain", "Gain"):
            press(page, "#points th", name)
            orders.append(page.evaluate(numbers))
    # As written: the best first. 6 failed and 7 is invalid: without a gain they are last both ways, in
    # the order in which they stood.
    assert " ".join(orders) == "12345067 01234567 76543210 01234567 76543210 12345076 05432176"


def test_a_thousand_points_are_paged_and_all_can_be_reached(tmp_path, browser):
    """One point has a hostile text; all are without a curve."""
    inputs = {**sweep_of(1000), "metrics": {}}
    hostile = "</script><img src=x onerror=\"document.title = 'owned'\"><!--<script>"
    inputs["sweep_points"][3] = replace(
        inputs["sweep_points"][3], chosen={"train.beta": hostile, "report.title": "run_3"}
    )
    measure = """(() => {
        const section = document.querySelector('#points'), input = section.querySelector('input');
        const press = (name) => [...section.querySelectorAll('button')].find((b) => b.innerText == name);
        const numbers = () => [...section.querySelectorAll('tbody th')].map((th) => Number(th.textContent));
        const told = () => section.querySelector('[role=status]').textContent;
        const type = (words) => { input.value = words; input.dispatchEvent(new Event('input')); };
        const said = [told()], seen = new Set(numbers());
        let most = numbers().length;
        while (!press('Next').disabled) {
            press('Next').click();
            numbers().forEach((n) => seen.add(n));
            most = Math.max(most, numbers().length);
        }
        said.push(`${seen.size} reached, ${most} at once, ${told()}`);
        press('Point').click();
        said.push(`${told()}: ${numbers()[0]} ${numbers().at(-1)}`);
        type('RUN_77 finished');
        said.push(`${told()}: ${numbers().join(' ')}`);
        type('nowhere');
        said.push(told());
        type('');
        press('All').click();
        said.push(`${told()}, ${numbers().length} rows`, `${document.querySelectorAll('img').length}`);
        return said;
    })()"""
    with browser.page(written(tmp_path, render(**inputs))) as page:
        said = page.evaluate(measure)
        assert page.evaluate("document.title") != "owned" and page.messages == []
    result = " ".join(str(number) for number in (77, *range(770, 780)))
    assert said == [
        "1 to 50 of 1000", "1000 reached, 50 at once, 951 to 1000 of 1000", "1 to 50 of 1000: 0 49",
        f"1 to 11 of 11: {result}", "no row has these words", "1 to 1000 of 1000, 1000 rows", "0",
    ]  # fmt: skip


def test_the_policy_allows_only_the_pages_own_script(any_page, browser):
    file = Path(any_page.removeprefix("file://"))
    source = file.read_text(encoding="utf-8")
    file.write_text(
        source.replace("</body>", "<script>document.title = 'x'</script></body>"), encoding="utf-8"
    )
    with browser.page(any_page) as page:
        assert page.evaluate("document.title") != "x"
        assert "Content Security Policy" in json.dumps(page.messages)
        assert page.evaluate("document.querySelectorAll('.tools button').length") > 0, "made by its own"


def test_a_report_of_5000_steps_opens_soon_and_is_small(run, tmp_path, browser):
    write_lines(run["grpo"] / "metrics.jsonl", *metrics(5000))
    write_lines(run["grpo"] / "completions.jsonl", *groups_of_steps(100))
    address = written(tmp_path, render_run(run, SETTINGS))
    assert (tmp_path / "index.html").stat().st_size < 2_000_000
    alone = tmp_path / "alone.html"
    alone.write_text(f'<!DOCTYPE html><title>x</title><script src="{PLOTLY}"></script>')
    used = []
    for opened in (alone.as_uri(), address):
        with browser.page("about:blank") as page:
            # seconds of the processor, which other programs on this machine do not prolong
            page.send("Performance.enable", timeDomain="threadTicks")
            page.go(opened)
            measured = page.send("Performance.getMetrics")["metrics"]
            used.append(next(one["value"] for one in measured if one["name"] == "TaskDuration"))
    print(f"plotly.js alone {used[0]:.2f} s, the report {used[1]:.2f} s of a processor")
    assert used[1] - used[0] < 1.0, used
