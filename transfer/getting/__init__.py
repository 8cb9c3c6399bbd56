"""Get data sets: download, unpack, sort and check them, or link what lies elsewhere.

command.py    python -m transfer get-data: options, sources behind names, overview, order of steps
assemble.py   one source to its folder, from archives or by links to where it is recognized
download.py   one archive, resumed and retried, from several addresses, by urllib3; its checksum
unpack.py     tar and zip archives, which are not trusted
"""
