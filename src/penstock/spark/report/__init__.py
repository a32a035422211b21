"""The report: one self-contained page with plots, made from the gold tables."""
