"""Devices, shared memory and what tensors leave behind."""
