"""A node under load that is killed again and again, and the proof that nothing acknowledged is lost: `python -m soak`.

    served     the process that is killed: a real node, whose disk says at which site it is
    sites      how it says so: a page of shared memory
    process    starting and killing it
    client     a bare client of the native protocol
    workload   what is put: everything about a message follows from its number
    notes      the client's own file of what it sent and what was acknowledged
    workers    connections that put, take, acknowledge and give back, and note it
    judge      reads the notes and the node's state, and finds what must not be
    memory     whether the node's memory stays flat
    lives      one life of the node after the other: start, look, load, kill
    run        a whole run of lives, and what it has come to
    etzel      redelivery of Etzel's messages by the clock on the wall, with and without a kill
    spark_sink Spark drivers that write into a queue and are killed, and the count of what came through
    spark_truth the pipeline's tables over generated histories, however their logs are cut

The crash tests (tests/crash) use the same parts.
"""
