"""What is searched: from the overrides that were typed to the overrides of each trial."""
