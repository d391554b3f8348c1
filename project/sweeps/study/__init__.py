"""The study as it is stored: claims, endings, clones, and one process at a time."""
