"""A generated history with known answers, and the same answers computed another way.

    history    makes it, with the real engine and storage
    doors      what is asked: producers, workers and operators; `monique`: tasks and their answers
    truth      what must come out, from what was asked and answered, never from the journal; with `lives` and `tasks`
    plain      the events of the files, read in the plainest way
    reference  the tables computed from such events in DuckDB
    comparing  where two tables differ
    checking   a pipeline's tables held against all of these

`test_generated` holds the first against each other; tests/spark/test_truth.py uses them on the pipeline.
"""
