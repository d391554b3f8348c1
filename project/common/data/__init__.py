"""Rows from files or sources to batches."""
