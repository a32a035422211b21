"""Measures Penstock side by side with what its users would pick instead: `python -m bench`, or `make bench`.

__main__      the command: arguments and the order of the run
model         rows, entries, goals and samples: the vocabulary of a run
judge         medians, ratios and verdicts
report        tables for people, JSON for programs
rows/         one module per subject, each with the rows of its table
servers       the processes under test; programs finds or fetches those of others
load          the loop that drives connections; dialogues/ says what they speak, one module per protocol
cpu, machine  what /proc tells about processes and the machine
floor_server  the least that a durable server in this language can cost
"""
