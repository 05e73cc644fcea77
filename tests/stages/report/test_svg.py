from xml.etree import ElementTree

from stages.report import svg


def drawn(name):
    figure, plot = svg.axes()
    plot.plot([0, 1, 2], [3, 1, 2], color=svg.COLOURS[0], marker="o")
    return svg.inline(figure, name, 'a "quoted" <alt>')


def test_two_figures_share_no_id_and_every_reference_leads_somewhere():
    ids = []
    for name in ("a", "b"):
        root = ElementTree.fromstring(drawn(name))
        own = [element.get("id") for element in root.iter() if element.get("id")]
        links = [element.get("href") for element in root.iter() if element.get("href")]
        links += [e.get("clip-path")[4:-1] for e in root.iter() if e.get("clip-path")]
        assert links and {link[1:] for link in links} <= set(own)
        ids += own
    assert len(ids) == len(set(ids))


def test_same_figure_same_bytes_and_nothing_that_styles_the_page():
    assert drawn("a") == drawn("a")
    assert "<style" not in drawn("a") and "<metadata" not in drawn("a") and "font-family" not in drawn("a")
    assert ElementTree.fromstring(drawn("a")).get("aria-label") == 'a "quoted" <alt>'
