"""Where Spark looks for the format `penstock`: it imports `pyspark_<format>` and takes `DefaultSource`.

Everything is in ``penstock.spark.source``; this module only has the name that Spark expects.
"""

from penstock.spark.source.datasource import DefaultSource as DefaultSource
