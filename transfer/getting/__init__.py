"""Get data sets: download, unpack, sort and check them, or link what lies elsewhere.

command.py    python -m transfer get-data: options, sources behind names, overview, order of steps
assemble.py   one source from its archives to its folder, which appears when it is whole
download.py   one archive, resumed and retried, from several addresses, by urllib3; its checksum
unpack.py     tar and zip archives, which are not trusted
recognize.py  sets that lie elsewhere, by their content; links to them
"""
