"""The run report: one self-contained HTML page made from the artifacts of a run.

artifacts.py reads the artifacts, one module per section arranges their content, page.py collects the sections
for page.html, and stage.py writes the page. sweep.py and sweep.html make the page of a sweep.
"""
