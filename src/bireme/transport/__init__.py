"""Transports: move frames between the nodes of a job, within a process, a machine or a network."""
