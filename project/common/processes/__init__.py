"""How processes of the tree are started, known, watched and ended."""
