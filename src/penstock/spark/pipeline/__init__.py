"""The pipeline: from the journal to bronze, silver and gold tables, incrementally and exactly once."""
