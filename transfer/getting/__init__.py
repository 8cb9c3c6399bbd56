"""Get datasets: download, unpack, sort and check them.

command.py    python -m transfer get-data: options, sources by name, overview, order of steps
sources.py    one source from its archives to its folder
download.py   one archive, resumed and retried, from several addresses; its checksum
unpack.py     tar and zip archives, which are not trusted
"""
