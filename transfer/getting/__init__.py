"""Get data sets: download, unpack, sort and check them, or link what lies elsewhere.

command.py    python -m transfer get-data: options, and the order of its steps
overview.py   the sources behind names; what would be got, from where, sizes, terms
assemble.py   one source from its archives to its folder, which appears when it is whole
download.py   one archive, resumed and retried, from several addresses, by urllib3; its checksum
unpack.py     tar and zip archives, which are not trusted
recognize.py  sets that lie elsewhere, by their content; links to them
"""
