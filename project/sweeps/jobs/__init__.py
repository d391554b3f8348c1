"""Jobs: composed, started in processes of their own, limited, and told how they ended."""
