"""Python imports this at its start wherever the folder is on PYTHONPATH: in main, the server and spawned processes."""

import os

if os.environ.get("CHAOS_DIR"):
    import chaos_probe

    chaos_probe.install()
