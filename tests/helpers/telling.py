"""A callback whose error tells secrets, as other people's errors do."""

import os
from typing import Any

from lightning.pytorch.callbacks import Callback

from project.common.processes.handover import handed_config


class Telling(Callback):
    """Fails with what the configuration and the environment have in confidence."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        config = handed_config()
        assert config is not None
        raise RuntimeError(f"the service refused {config['user']['api_key']} and {os.environ['HF_TOKEN']}")
