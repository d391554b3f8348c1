"""Machine learning research in which no process, lock, file or trial is left behind."""

__version__ = "0.1.0"
