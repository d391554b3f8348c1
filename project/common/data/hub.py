"""Loads a dataset by its name in the hub, or soon says that it cannot."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from project.common.errors import DataError

log = logging.getLogger(__name__)

_PATIENCE_S = 2.0
_PORTS = {"http": 80, "https": 443}


def load(name: str) -> Any:
    """Returns the dataset `owner/name` or `owner/name:configuration`; never runs code that comes with it.

    Where the hub cannot be reached only what an earlier download left is looked at: the libraries would try for half a
    minute first, and a misspelt file is a name, too.
    """
    import datasets
    from huggingface_hub import constants

    reached = constants.HF_HUB_OFFLINE or is_reachable(constants.ENDPOINT, within_s=_PATIENCE_S)
    repository, _, configuration = name.partition(":")
    try:
        with nullcontext() if reached else _offline():
            return datasets.load_dataset(repository, configuration or None)
    except (OSError, ValueError, RuntimeError) as error:
        why = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if not reached:
            why = f"{constants.ENDPOINT} does not answer, and there is no earlier download"
        raise DataError(
            f"task.data.files: {name!r} is no file here, and as a dataset of the hub it could not be loaded ({why}); "
            "give a path that exists, or go online"
        ) from error


def is_reachable(address: str, *, within_s: float) -> bool:
    """Whether a connection to an address of the web, or to the proxy for it, comes about in time."""
    url = urlsplit(address)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(url.hostname or ""):
        url = urlsplit(proxy)
    if url.hostname is None:
        return True  # a proxy written in a way of its own; it will be seen
    place = (url.hostname, url.port or _PORTS.get(url.scheme, 1080))
    connected = threading.Event()

    def connect() -> None:
        with suppress(OSError), socket.create_connection(place, timeout=within_s):
            connected.set()

    # A thread, because looking up a name knows no time limit.
    thread = threading.Thread(target=connect, name="hub", daemon=True)
    thread.start()
    thread.join(within_s)
    return connected.is_set()


@contextmanager
def _offline() -> Iterator[None]:
    import datasets
    from huggingface_hub import constants

    log.info("%s does not answer: only what was downloaded before is looked at", constants.ENDPOINT)
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
