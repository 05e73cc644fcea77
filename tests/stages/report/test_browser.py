"""The page in a real browser: no console error, pictures, light and dark."""

import re
import shutil
import subprocess
import warnings
from dataclasses import replace

import pytest

from stages.report import compare
from stages.report.config import ReportConfig
from stages.report.page import render as render_run
from stages.report.sweep import render
from tests.stages.fetch.settings import write_lines
from tests.stages.report.synthetic import compared, sweep_of

pytestmark = pytest.mark.browser


@pytest.fixture
def browse(tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        warnings.warn("chromium is missing: the pages were NOT tested in a browser", stacklevel=2)
        pytest.skip("chromium is missing: apt-get install chromium")

    def run(page, *flags, dark=False):
        profile = tmp_path / f"profile{len(list(tmp_path.iterdir()))}"
        return subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--hide-scrollbars", "--enable-logging=stderr", "--window-size=1200,1600",
             f"--user-data-dir={profile}",
             f"--blink-settings=preferredColorScheme={0 if dark else 1}", *flags, page.as_uri()],
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip

    return run


def pixels(file):
    image = pytest.importorskip("PIL.Image").open(file).convert("L")
    histogram = image.histogram()
    return sum(i * n for i, n in enumerate(histogram)) / sum(histogram), len([n for n in histogram if n])


def written(directory, page):
    """Write a page; return its path."""
    file = directory / "index.html"
    file.write_text(page, encoding="utf-8")
    return file


@pytest.fixture
def page_of_run(run, tmp_path):
    return written(tmp_path, render_run(run, ReportConfig(title=None, samples=12, text_limit=1500)))


@pytest.fixture(params=["run", "sweep", "compare"])
def page(request, tmp_path):
    """The page of a run, of a sweep, or of a comparison."""
    if request.param == "run":
        return request.getfixturevalue("page_of_run")
    text = render(**sweep_of(8)) if request.param == "sweep" else compare.render(compared(3))
    return written(tmp_path, text)


def probed(page, measure):
    """A copy that runs `measure`; the page itself forbids scripts that are not its own."""
    source = page.read_text(encoding="utf-8")
    policy = source[source.index('<meta http-equiv="Content-Security-Policy"') :].split("\n")[0]
    copy = page.with_name("probe.html")
    probe = f"<script>{measure}</script></body>"
    copy.write_text(source.replace(policy, "").replace("</body>", probe), encoding="utf-8")
    return copy


def framed(page, measure, width):
    """A page that shows `probed` at any width, and takes its title; windows are at least 500 px wide."""
    probed(page, f"onload = () => {{ {measure}; parent.postMessage(document.title, '*'); }}")
    frame = page.with_name("frame.html")
    frame.write_text(
        f'<iframe src="probe.html" width="{width}" height="900"></iframe>'
        "<script>onmessage = (message) => { document.title = message.data; }</script>"
    )
    return frame


def test_a_page_has_no_console_error_follows_the_colour_scheme_and_needs_no_script(page, tmp_path, browse):
    plain = page.with_name("bare.html")
    plain.write_text(re.sub("<script>.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    seen = {}
    for name, shown in (("light", page), ("dark", page), ("bare", plain)):
        message = browse(shown, f"--screenshot={tmp_path / name}.png", dark=name == "dark").stderr
        assert "CONSOLE" not in message, message
        seen[name], shades = pixels(tmp_path / f"{name}.png")
        assert shades > 100, "an empty page has few shades"
    assert seen["light"] > 200 and seen["dark"] < 70
    assert abs(seen["light"] - seen["bare"]) < 1


def test_pointing_at_a_curve_shows_its_values_inside_the_figure(page_of_run, browse):
    # Without a pointer, the rules for pointing are applied to all steps by name.
    measure = """
        const plot = document.querySelector('.plot:has(ol)'), steps = [...plot.querySelectorAll('li')];
        plot.scrollIntoView({behavior: 'instant', block: 'center'});
        const image = plot.querySelector('img'), box = image.getBoundingClientRect();
        const svg = new DOMParser().parseFromString(atob(image.src.split(',')[1]), 'image/svg+xml');
        const [, , width, height] = svg.documentElement.getAttribute('viewBox').split(' ').map(Number);
        const last = [...svg.querySelectorAll('use')].at(-1);  // the marker of the last point
        const under = document.elementFromPoint(box.x + last.getAttribute('x') / width * box.width,
            box.y + last.getAttribute('y') / height * box.height);
        const shown = () => steps.filter((step) => step.firstChild.getBoundingClientRect().width > 0).length;
        const before = shown();
        for (const rule of document.styleSheets[0].cssRules)
            if (rule.selectorText == '.plot li:hover p') rule.selectorText = '.plot li p';
        const panel = plot.closest('figure').getBoundingClientRect();
        const inside = steps.filter((step) => {
            const box = step.firstChild.getBoundingClientRect();
            return box.left >= panel.left && box.right <= panel.right;
        });
        document.title = [steps.indexOf(under) + 1 == steps.length, before, shown() == steps.length,
            inside.length == steps.length].join(' ');
    """
    seen = browse(framed(page_of_run, measure, 390), "--dump-dom", "--virtual-time-budget=2000")
    assert "<title>true 0 true true</title>" in seen.stdout, re.findall("<title>.*</title>", seen.stdout)


def test_pages_are_sound_accessible_and_self_contained(page, browse):
    measure = """window.onload = () => {
        const find = (selector) => [...document.querySelectorAll(selector)];
        const all = find('*'), ids = all.map((node) => node.id).filter(Boolean);
        const levels = find('h1, h2, h3, h4').map((node) => Number(node.tagName[1]));
        const leads = (href) => href.startsWith('#') ? document.getElementById(href.slice(1))
            : /^(data:text\\/csv|(\\.\\.\\/)+report\\/|table\\.csv)/.test(href);
        const tops = find('.grid').map((grid) =>
            [...grid.children].slice(0, 2).map((panel) => panel.getBoundingClientRect().top));
        find('details').forEach((one) => { one.open = true; });  // closed ones show nothing
        const small = (node) => {
            const box = node.getBoundingClientRect(), inner = node.getBBox ? node.getBBox() :
                {width: node.naturalWidth, height: node.naturalHeight};
            return box.width < 100 || box.height < 50 || inner.width < 100 || inner.height < 50;
        };
        const problems = {
            figures: find('svg[role=img], img').filter(small).length,
            ids: ids.length - new Set(ids).size,
            handlers: all.filter((node) => /(^| )on/.test(node.getAttributeNames().join(' '))).length,
            elements: find('iframe, object, embed, base, form, [srcset]').length,
            sources: find('[src]').filter((node) => !/^data:image.svg/.test(node.src)).length,
            links: find('a').filter((node) => !leads(node.getAttribute('href'))).length,
            once: ['h1', 'main', 'style'].filter((name) => find(name).length != 1).length,
            levels: levels.filter((level, i) => i && level > levels[i - 1] + 1).length,
            captions: find('table').length - find('table > caption').length,
            texts: find('img:not([alt]), svg:not([role=img][aria-label])').length,
            heights: tops.filter(([left, right]) => left != (right ?? left)).length + (tops.length == 0),
        };
        document.title = 'problems' + Object.entries(problems).filter(([, n]) => n).join(' ');
    }"""
    seen = browse(probed(page, measure), "--dump-dom")
    assert "<title>problems</title>" in seen.stdout, re.findall("<title>.*</title>", seen.stdout)


def test_wide_content_does_not_widen_a_narrow_page(page, browse):
    measure = "document.title = 'wide ' + (document.documentElement.scrollWidth - innerWidth)"
    seen = browse(framed(page, measure, 390), "--dump-dom", "--virtual-time-budget=2000")
    assert "<title>wide 0</title>" in seen.stdout, re.findall("<title>.*</title>", seen.stdout)


def test_hostile_completions_stay_text(run, tmp_path, browse):
    owned = "document.title = 'owned'"
    texts = [
        f"<script>{owned}</script>", f'<img src=x onerror="{owned}">', f"]]><svg onload=\"{owned}\">",
        f"</pre></article></main><h1>free</h1><script>{owned}</script>", f"javascript:{owned}",
        "\u202egnp.exe", "x" * 100_000, "<b>" * 30_000, "\u0301" * 5000,
    ]  # fmt: skip
    for stage, name in (("evaluate", "samples.jsonl"), ("grpo", "completions.jsonl")):
        keys = ("prompt", "solution", "before", "after", "completion")
        rows = [{"step": 1, "length": 5, **dict.fromkeys(keys, text)} for text in texts]
        write_lines(run[stage] / name, *rows)
    page = written(tmp_path, render_run(run, ReportConfig(title=texts[0], samples=20, text_limit=3000)))
    measure = """
        const wide = document.documentElement.scrollWidth - innerWidth;
        const free = document.querySelectorAll('.sample script, .sample img, .sample b, h1').length;
        if (document.title != 'owned') document.title = [free, document.scripts.length, wide].join(' ');
    """
    seen = browse(probed(page, measure), "--dump-dom", "--virtual-time-budget=2000")
    assert "<title>1 1 0</title>" in seen.stdout  # the page's own h1, and the probe
    assert "CONSOLE" not in seen.stderr, seen.stderr


def test_a_sweep_sorts_by_any_column(tmp_path, browse):
    page = written(tmp_path, render(**sweep_of(8)))
    column = "(name) => [...document.querySelectorAll('#points th button')].find((b) => b.innerText == name)"
    numbers = "[...document.querySelectorAll('#points tbody th')].map((cell) => cell.innerText).join('')"
    clicks = "".join(f"find('{name}').click(); seen.push({numbers});" for name in
                     ("Point", "Point", "report.title", "report.title", "Gain", "Gain"))  # fmt: skip
    measure = f"const find = {column}, seen = [{numbers}]; {clicks} document.title = seen.join(' ')"
    # As written: the best first. 6 failed and 7 is invalid: without a gain they are last both ways, in
    # the order in which they stood.
    orders = "12345067 01234567 76543210 01234567 76543210 12345076 05432176"
    assert f"<title>{orders}</title>" in browse(probed(page, measure), "--dump-dom").stdout


def test_a_thousand_points_are_paged_and_all_can_be_reached(tmp_path, browse):
    """One point has a hostile text; all are without a curve."""
    inputs = {**sweep_of(1000), "metrics": {}}
    hostile = "</script><img src=x onerror=\"document.title = 'owned'\"><!--<script>"
    inputs["sweep_points"][3] = replace(
        inputs["sweep_points"][3], chosen={"train.beta": hostile, "report.title": "run_3"}
    )
    page = written(tmp_path, render(**inputs))
    measure = """
        const nodes = () => document.querySelectorAll('*').length;
        const section = document.querySelector('#points'), input = section.querySelector('input');
        const press = (name) => [...section.querySelectorAll('button')].find((b) => b.innerText == name);
        const numbers = () => [...section.querySelectorAll('tbody th')].map((th) => Number(th.textContent));
        const told = () => section.querySelector('[role=status]').textContent;
        const type = (words) => { input.value = words; input.dispatchEvent(new Event('input')); };
        const opened = nodes(), said = [told()], seen = new Set(numbers());
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
        said.push(`${told()}, ${numbers().length} rows`, opened < 1000 ? 'few nodes' : opened,
                  document.querySelectorAll('img').length);
        if (document.title != 'owned') document.title = said.join(' | ');
    """
    seen = browse(probed(page, measure), "--dump-dom")
    assert "CONSOLE" not in seen.stderr, seen.stderr
    result = " ".join(str(number) for number in (77, *range(770, 780)))
    assert re.findall("<title>(.*?)</title>", seen.stdout)[0].split(" | ") == [
        "1 to 50 of 1000", "1000 reached, 50 at once, 951 to 1000 of 1000", "1 to 50 of 1000: 0 49",
        f"1 to 11 of 11: {result}", "no row has these words", "1 to 1000 of 1000, 1000 rows", "few nodes",
        "0",
    ]  # fmt: skip


def test_the_policy_allows_only_the_script_of_the_sweep_page(tmp_path, browse):
    page, source = tmp_path / "index.html", render(**sweep_of(8))
    page.write_text(source.replace("</body>", "<script>document.title = 'x'</script></body>"))
    seen = browse(page, "--dump-dom")
    assert '<th scope="col" class="num"><button>Point</button></th>' in seen.stdout  # made by its own
    assert "<title>x</title>" not in seen.stdout and "Content Security Policy" in seen.stderr
