"""HTML pages that need no other file and no network: every text escaped and masked, plots drawn by plotly."""
