"""What a node keeps on disk: the log, its metadata, snapshots of the state, the journal of events, and their archive.

``store.Store`` is the door to all of it; ``inspect`` reads any of the files for people; ``replace`` exchanges snapshot
and log for an import. The formats and the reasons for them stand in the modules that own them: ``layout`` has the map.

Storage knows entries as (index, term, bytes), journal rows as bytes of a fixed length, and snapshots as a row of
blocks. What these mean is the engine's business.
"""
