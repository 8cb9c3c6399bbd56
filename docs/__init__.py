"""The documentation site: pages in Markdown, built by `make docs`.

conf.py        settings of Sphinx
generate.py    writes the pages of the reference that follow from the code, at every build
"""
