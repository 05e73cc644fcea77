"""The run report: one self-contained HTML page made from the artifacts of a run.

artifacts.py reads what the stages left (and survives what is missing or broken), text.py makes any
text safe to look at, curves.py and svg.py draw, layout_picture.py and timeline.py arrange,
page.py gathers everything that page.html shows, stage.py writes the page. sweep.py and sweep.html make the
page of many runs with the same means.
"""
