"""Consistency models: who may run ahead of whom. Pure bookkeeping on small numbers."""
