"""The same trials as a plain Hydra script runs them, without our launcher: what a sweep of ours is measured against.

Each trains in the process that Hydra's launcher gives it, and is not isolated from anything there.
"""

from typing import Any

import hydra
from omegaconf import DictConfig

from project.common.whitelist import WHITELIST
from project.train import config_dir
from project.training.launch import supervise


@hydra.main(config_path=config_dir(), config_name="config", execution_whitelist=list(WHITELIST))
def main(cfg: DictConfig) -> Any:
    return supervise(cfg)


if __name__ == "__main__":
    main()
