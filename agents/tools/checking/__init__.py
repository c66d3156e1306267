"""Tells whether an environment is fit for training in batches and processes."""
