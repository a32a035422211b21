"""What the rows about Spark need: another source to compare with, decoding alone, following a running pipeline."""
