"""Child processes: the only way into foreign parsers, converters and runtimes.

They abort, crash and print; in a child that costs one line. The protocol is one JSON line per
message over the child's standard input and output, so that any way to start ``python -m
mpexport.worker`` (here, by another interpreter, over ssh) is a way to run a job. Arrays cross as
files.
"""
