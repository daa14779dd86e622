"""What can be inferred from exported vectors. In: arrays and tables, no model. Out: probes, gaps, verdicts, power."""
