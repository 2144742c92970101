"""Stores over a parameter server: a worker's side of them."""
