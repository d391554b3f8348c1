"""The tokenizer of this process: pretrained, or trained once per machine on the training split."""

import copy
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from project.common.data import tokenizer_files
from project.common.errors import ConfigError, NotInitializedError
from project.common.files import fingerprints
from project.common.managers.base import BaseProcessManager, Health, ThreadLocal
from project.common.processes import stop
from project.common.processes.identity import Role
from project.common.whitelist import instantiate

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from project.common.managers.directory import DirectoryManager

log = logging.getLogger(__name__)

VARIABLE = "TOKENIZERS_PARALLELISM"
# What we put there: a child inherits it, and must not take it for the user's choice.
OUR_VARIABLE = f"{__name__.partition('.')[0].upper()}_{VARIABLE}"
# Fewer texts are not worth waking threads for.
MIN_TEXTS_FOR_THREADS = 256


class TokenizerManager(BaseProcessManager):
    """Owns the tokenizer of this process. A fast tokenizer's truncation state is not safe in threads: each has a copy.

    The library's thread pool does not survive a fork, and a process that finds out by itself warns. So the variable
    that rules it is always set: to `false`, but for the moments when a rank tokenises a whole dataset. A value that the
    user set stays.

    Args:
        directory: For the cache.
        pretrained: Folder, or name at the hub, and nothing is trained; None trains one.
        train: Node of a function from texts to a fast tokenizer, called with the training split. Without both there
            is no tokenizer, which suits data without text.
        threads: Whether a rank tokenises datasets with all its threads; None decides by the role.
    """

    name: ClassVar[str] = "tokenizer"
    roles: ClassVar[frozenset[Role]] = frozenset({Role.RANK, Role.WORKER})

    def __init__(
        self,
        *,
        directory: "DirectoryManager",
        pretrained: str | None = None,
        train: Mapping[str, Any] | None = None,
        threads: bool | None = None,
    ) -> None:
        self._directory = directory
        self._pretrained = pretrained
        self._train = train
        self._is_threaded = self.identity.role != Role.WORKER if threads is None else threads
        self._is_users_choice = os.environ.get(VARIABLE) != os.environ.get(OUR_VARIABLE)
        self._lock = threading.RLock()
        self._tokenizer: PreTrainedTokenizerFast | None = None
        self._fingerprint: str | None = None
        self._local = ThreadLocal(owner=None, tokenizer=None, buffers={})
        if not self._is_users_choice:
            _set_parallelism("false")

    @property
    def is_configured(self) -> bool:
        """Whether there is a tokenizer, or will be one."""
        return self._pretrained is not None or self._train is not None

    def prepare(self, texts: Callable[[], Iterable[str]], *, fingerprint: str) -> None:
        """Loads the tokenizer; trains it first if no process of this machine has done so for these texts.

        One that is there already, such as a checkpoint's, stays.

        Args:
            texts: Called in the process that trains, and nowhere else; gives the training split's texts.
            fingerprint: Of these texts.
        """
        with self._lock:
            if self._tokenizer is not None:
                return
            if self._train is None or self._pretrained is not None:
                self._take(self._load_pretrained())
                return
            key = fingerprints.fingerprint(
                fingerprint,
                fingerprints.of_target(self._train),
                fingerprints.versions_of("tokenizers", "transformers"),
            )
            folder = self._directory.create_once(f"tokenizers/{key}", lambda path: self._train_into(path, texts))
            self._take(tokenizer_files.load(folder))

    def _train_into(self, folder: os.PathLike[str], texts: Callable[[], Iterable[str]]) -> None:
        from transformers import PreTrainedTokenizerFast as Fast

        assert self._train is not None
        # A tokenizer can be called, so Hydra asks whether what the function returns may be: by its class's real name.
        function = instantiate({**self._train, "_partial_": True}, allow=(f"{Fast.__module__}.{Fast.__qualname__}",))
        with self._parallelism(n_texts=MIN_TEXTS_FOR_THREADS):
            try:
                tokenizer = function(_stoppable(texts()))
            except (ValueError, TypeError, OverflowError) as error:
                raise ConfigError(f"task.tokenizer: {error}") from error
        if not isinstance(tokenizer, Fast):
            raise ConfigError(
                f"task.tokenizer: {self._train['_target_']} gave a {type(tokenizer).__name__}; "
                "it must return a PreTrainedTokenizerFast"
            )
        tokenizer.save_pretrained(str(folder))
        log.info("trained a tokenizer of %d tokens", len(tokenizer))

    def _load_pretrained(self) -> "PreTrainedTokenizerFast":
        assert self._pretrained is not None
        try:
            return tokenizer_files.load(self._pretrained)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"managers.tokenizer.pretrained: no tokenizer at {self._pretrained!r} ({str(error).splitlines()[0]}); "
                "use a folder with a tokenizer.json, or a name at the hub"
            ) from error

    def _take(self, tokenizer: "PreTrainedTokenizerFast") -> None:
        if tokenizer.pad_token is None:
            if tokenizer.eos_token is None:
                raise ConfigError(
                    "managers.tokenizer: has neither a padding nor an end token; add one and save the tokenizer again"
                )
            tokenizer.pad_token = tokenizer.eos_token
        self._fingerprint = fingerprints.fingerprint(
            json.loads(tokenizer_files.state_of(tokenizer)), tokenizer.special_tokens_map, tokenizer.padding_side
        )
        self._tokenizer = tokenizer

    @property
    def tokenizer(self) -> "PreTrainedTokenizerFast":
        """The calling thread's own tokenizer."""
        original = self._get()
        if self._local.owner is not original:
            with self._lock:
                self._local.tokenizer = copy.deepcopy(original)
            self._local.owner, self._local.buffers = original, {}
        return self._local.tokenizer

    def _get(self) -> "PreTrainedTokenizerFast":
        with self._lock:
            if self._tokenizer is None and self._pretrained is not None:
                self._take(self._load_pretrained())
            if not self.is_configured:
                raise ConfigError(
                    "managers.tokenizer: neither pretrained nor train is given; set pretrained=FOLDER, or "
                    "task.tokenizer._target_"
                )
            if self._tokenizer is None:
                raise NotInitializedError(
                    f"managers.tokenizer: is not trained yet in {self.identity.label} (pid {self.pid}); "
                    "call get_data_manager().prepare() there first"
                )
            return self._tokenizer

    def encode(self, texts: Sequence[str], *, max_length: int | None = None) -> list[list[int]]:
        """Returns the token ids of each text, special tokens included, cut to `max_length`."""
        backend = self._buffer(max_length)
        with self._parallelism(n_texts=len(texts)):
            return [encoding.ids for encoding in backend.encode_batch_fast(list(texts))]

    def _buffer(self, max_length: int | None) -> "Tokenizer":
        """This thread's tokenizer for this length: truncation is part of its state."""
        tokenizer = self.tokenizer
        buffers: dict[int | None, Tokenizer] = self._local.buffers
        if max_length not in buffers:
            backend = copy.deepcopy(tokenizer.backend_tokenizer)
            backend.no_padding()
            backend.no_truncation()
            if max_length is not None:
                backend.enable_truncation(max_length)
            buffers[max_length] = backend
        return buffers[max_length]

    @contextmanager
    def _parallelism(self, *, n_texts: int) -> Iterator[None]:
        if self._is_users_choice or not self._is_threaded or n_texts < MIN_TEXTS_FOR_THREADS:
            yield
            return
        with _variable_lock:
            _set_parallelism("true")
            try:
                yield
            finally:
                _set_parallelism("false")

    @property
    def pad_token_id(self) -> int:
        """What padding consists of."""
        return int(self._get().pad_token_id)

    @property
    def end_token_id(self) -> int | None:
        """What ends a text: the end or separator token; None if there is none."""
        tokenizer = self._get()
        return tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id

    @property
    def padding_side(self) -> str:
        """`right` or `left`."""
        return str(self._get().padding_side)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return len(self._get())

    def sizes(self) -> dict[str, Any]:
        """Returns what a function that changes rows may want to know, under the names of its parameters."""
        tokenizer = self._get()
        return {
            "vocab_size": self.vocab_size,
            "mask_token_id": tokenizer.mask_token_id,
            "special_token_ids": sorted(tokenizer.all_special_ids),
        }

    @property
    def fingerprint(self) -> str:
        """Of what the tokenizer does, wherever it came from."""
        self._get()
        assert self._fingerprint is not None
        return self._fingerprint

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the tokenizer in the form that `pretrained` reads."""
        self.tokenizer.save_pretrained(os.fspath(folder))

    def as_bytes(self) -> bytes:
        """Returns the tokenizer for a checkpoint."""
        return tokenizer_files.to_bytes(self.tokenizer)

    def from_bytes(self, data: bytes) -> None:
        """Takes a checkpoint's tokenizer in place of the one configured; before the data is prepared."""
        with self._lock:
            self._take(tokenizer_files.from_bytes(data))

    def check(self) -> Health:
        """Whether texts can be tokenised."""
        if self._tokenizer is not None:
            return Health(ok=True, reason=f"{len(self._tokenizer)} tokens")
        if not self.is_configured:
            return Health(ok=True, reason="none is configured")
        if self._pretrained is not None:
            return Health(ok=True, reason=f"{self._pretrained} is loaded when needed")
        return Health(ok=False, reason="not trained yet: the data manager's prepare() does it")

    def close(self) -> None:
        """Drops the tokenizer and every thread's copies; the variable is as it was found."""
        if not self._is_users_choice:
            os.environ.pop(VARIABLE, None)
            os.environ.pop(OUR_VARIABLE, None)
        self._tokenizer = None
        self._local = ThreadLocal(owner=None, tokenizer=None, buffers={})


_variable_lock = threading.RLock()


def _set_parallelism(value: str) -> None:
    os.environ[VARIABLE] = os.environ[OUR_VARIABLE] = value


def _stoppable(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        stop.raise_if_stop_requested()
        yield text
