"""Sphinx configuration of the English pages (docs) and the Chinese pages (docs/zh); see `make docs`."""

project = "grpoflow"
html_title = "grpoflow"
extensions = ["myst_parser", "sphinx_copybutton", "docs.generated"]
exclude_patterns = ["zh"]
nitpicky = True
smartquotes = False  # "--" starts an option and must not become a dash

myst_enable_extensions = ["attrs_inline", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
copybutton_prompt_text = r"\$ |> "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
html_context = {"english_only": []}
html_use_index = False
