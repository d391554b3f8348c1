"""The framework: processes, managers and their configuration. Imports nothing heavy."""
