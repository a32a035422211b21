"""The data source `penstock`: options, offsets, planning, decoding, reading and writing."""
