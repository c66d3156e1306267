"""Environments that are no Python objects in a process: tensor programs."""
