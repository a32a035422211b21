"""Penstock's history in Spark: the data source, the pipeline's tables, their report.

Needs the extra `spark` (pyspark, pyarrow, numpy) and Java 17 or newer. Nothing is imported here, so that whoever wants
one part need not pay for the others.
"""
