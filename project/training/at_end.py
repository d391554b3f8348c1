"""What a task does with the model that is kept, such as writing a sample of its text."""

import logging
from collections.abc import Mapping
from typing import Any

from project.common.managers import get_directory_manager, get_tokenizer_manager
from project.common.whitelist import instantiate

log = logging.getLogger(__name__)


def run_at_end(node: Mapping[str, Any] | None, *, model: Any) -> None:
    """Calls the task's function with model, tokenizer and the run's folder; what it returns is logged.

    The training is done and its metrics are written: what the function refuses is a warning.

    Args:
        node: Of the function; None does nothing.
        model: With the weights that are kept.
    """
    if node is None:
        return
    tokenizer = get_tokenizer_manager()
    try:
        said = instantiate(node, _partial_=True)(
            model=model,
            tokenizer=tokenizer.tokenizer if tokenizer.is_configured else None,
            folder=get_directory_manager().run_dir,
        )
    except ValueError as error:
        log.warning("task.at_end: %s", error)
        return
    if said is not None:
        log.info("%s", said)
