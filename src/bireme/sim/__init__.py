"""Whole jobs in one process under virtual time, with faults by seed. Runs the same core."""
