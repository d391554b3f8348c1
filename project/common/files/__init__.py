"""Files of a run and of the cache: never torn, owned by one, built once."""
