"""The check of a machine's GPUs: checks of both halves in processes of their own, and their page.

checks.py   starts the commands that check, reads their lines, and keeps the answers
page.py     from answers to markdown
"""
