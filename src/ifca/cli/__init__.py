"""The command line: a module for each group of verbs, which parse, call one function and print.

These modules import typer and nothing heavy; what a verb uses is imported when it is called.
"""
