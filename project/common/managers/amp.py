"""Mixed precision: the number format that the device can do, the same on every rank, and said in one line."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from project.common.errors import ConfigError
from project.common.managers.base import BaseManager, Health, ThreadLocal
from project.common.processes.identity import Role

if TYPE_CHECKING:
    import torch

    from project.common.managers.cuda import CUDAManager

log = logging.getLogger(__name__)

DTYPES = ("auto", "float32", "bfloat16", "float16")
LIGHTNING = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}
HAS_BFLOAT16 = (8, 0)
HAS_TENSOR_CORES = (7, 0)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A decision.

    Args:
        dtype: float32, bfloat16 or float16; the latter two mean autocast over float32 weights.
        reason: Why this one.
        is_replaced: Whether something else was asked for by name.
    """

    dtype: Literal["float32", "bfloat16", "float16"]
    reason: str
    is_replaced: bool = False


def choose_precision(wish: str, *, accelerator: str, capability: tuple[int, int] | None) -> Precision:
    """What to compute in.

    Args:
        wish: One of `DTYPES`.
        accelerator: cpu, cuda or mps.
        capability: Lowest CUDA capability among the devices of the job; None without CUDA.
    """
    match wish:
        case "auto":
            return _best(accelerator, capability)
        case "float32":
            return Precision(dtype="float32", reason="as configured")
        case "bfloat16":
            is_slow = accelerator == "cuda" and (capability or HAS_BFLOAT16) < HAS_BFLOAT16
            remark = ", which this device only emulates" if is_slow else ""
            return Precision(dtype="bfloat16", reason=f"as configured{remark}")
        case "float16" if accelerator == "cuda":
            return Precision(dtype="float16", reason="as configured, with a gradient scaler")
        case "float16":
            reason = f"float16 was asked for, but its gradient scaler needs a CUDA device, and this is {accelerator}"
            return Precision(dtype="float32", reason=reason, is_replaced=True)
    choices = f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}"
    raise ConfigError(f"managers.amp.dtype: {wish!r} is not a dtype; use {choices}")


def _best(accelerator: str, capability: tuple[int, int] | None) -> Precision:
    if accelerator != "cuda" or capability is None:
        return Precision(dtype="float32", reason=f"auto: {accelerator} is fastest and safest with it")
    name = f"capability {capability[0]}.{capability[1]}"
    if capability >= HAS_BFLOAT16:
        return Precision(dtype="bfloat16", reason=f"auto: the device has it ({name})")
    if capability >= HAS_TENSOR_CORES:
        return Precision(dtype="float16", reason=f"auto: the device is too old for bfloat16 ({name})")
    return Precision(dtype="float32", reason=f"auto: the device is not faster with less ({name})")


class AMPManager(BaseManager):
    """Serves autocast, gradient scaling and Lightning's precision. Whether autocast is on is each thread's own state.

    Args:
        dtype: auto, float32, bfloat16 or float16.
    """

    name: ClassVar[str] = "amp"
    roles: ClassVar[frozenset[Role]] = frozenset({Role.RANK})

    def __init__(
        self, *, cuda: "CUDAManager", dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    ) -> None:
        if dtype not in DTYPES:
            choose_precision(dtype, accelerator="cpu", capability=None)  # raises, before any device is asked
        self._cuda = cuda
        self.precision = choose_precision(dtype, accelerator=cuda.accelerator, capability=cuda.capability)
        self._scaler: torch.amp.GradScaler | None = None
        self._local = ThreadLocal(depth=0)
        is_first = not self._identity.rank
        level = logging.WARNING if self.precision.is_replaced and is_first else logging.INFO
        log.log(level, "precision: %s (%s)", self.lightning_precision(), self.precision.reason)

    @property
    def dtype(self) -> "torch.dtype":
        """What autocast computes in; float32 means that there is no autocast."""
        import torch

        return getattr(torch, self.precision.dtype)

    @property
    def reason(self) -> str:
        """Why this dtype was chosen."""
        return self.precision.reason

    @property
    def is_mixed(self) -> bool:
        """Whether autocast does anything."""
        return self.precision.dtype != "float32"

    @property
    def is_active(self) -> bool:
        """Whether the calling thread is within `autocast()` now."""
        return self._local.depth > 0

    @contextmanager
    def autocast(self, *, enabled: bool = True) -> Iterator[None]:
        """Computes in `dtype` where that is safe, for this thread only; `enabled=False` computes in float32 within."""
        import torch

        before = self._local.depth
        self._local.depth = before + 1 if enabled and self.is_mixed else 0
        try:
            with torch.autocast(self._cuda.accelerator, dtype=self._autocast_dtype(), enabled=self._local.depth > 0):
                yield
        finally:
            self._local.depth = before

    @property
    def scaler(self) -> "torch.amp.GradScaler":
        """Keeps small float16 gradients from vanishing; with other dtypes it passes everything through unchanged."""
        import torch

        if self._scaler is None:
            self._scaler = torch.amp.GradScaler(self._cuda.accelerator, enabled=self.precision.dtype == "float16")
        return self._scaler

    def lightning_precision(self) -> str:
        """What Lightning's `Trainer(precision=...)` takes; its plugin then does autocast and scaling."""
        return LIGHTNING[self.precision.dtype]

    def state_dict(self) -> dict[str, Any]:
        """State of the gradient scaler; empty when there is none."""
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up a scaler's state. One from another kind of device is left alone, and said so."""
        if state and self.scaler.is_enabled():
            self.scaler.load_state_dict(state)
        elif state:
            log.info("the checkpoint's gradient scaler is not needed with %s", self.precision.dtype)
        elif self.scaler.is_enabled():
            log.info("the checkpoint has no gradient scaler; a new one starts at scale %.0f", self.scaler.get_scale())

    def check(self) -> Health:
        """What was chosen; not ok when that is not what was asked for."""
        return Health(ok=not self.precision.is_replaced, reason=f"{self.precision.dtype}: {self.reason}")

    def close(self) -> None:
        """Lets go of the scaler."""
        self._scaler = None

    def _autocast_dtype(self) -> "torch.dtype":
        """Autocast warns of float32 even when it is off."""
        import torch

        return self.dtype if self.is_mixed else torch.bfloat16
