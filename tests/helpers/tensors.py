"""Children that report how they would share tensors."""

import json
import resource
from pathlib import Path


def share_under_a_limit(soft: int, hard: int, report: Path) -> None:
    """Writes what is decided in a process that may open `soft` files, at most `hard`."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    import torch.multiprocessing

    from project.common.devices.shared_memory import apply_sharing

    sharing = apply_sharing()
    report.write_text(
        json.dumps(
            {
                "strategy": sharing.strategy,
                "set": torch.multiprocessing.get_sharing_strategy(),
                "limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            }
        )
    )
