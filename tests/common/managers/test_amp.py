"""The right precision for a device, said once, and harmless where there is nothing to do."""

import logging
import threading
from collections.abc import Iterator

import pytest
import torch
from lightning.pytorch import Trainer

from project.common.errors import ConfigError
from project.common.managers.amp import AMPManager, choose_precision
from project.common.managers.cuda import CUDAManager
from project.common.processes.identity import Identity, Role, current_identity, set_identity


@pytest.fixture(autouse=True)
def rank_process() -> Iterator[None]:
    before = current_identity()
    set_identity(Identity(role=Role.RANK, rank=0))
    yield
    set_identity(before)


def manager(dtype: str = "auto") -> AMPManager:
    return AMPManager(cuda=CUDAManager(accelerator="cpu"), dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wish", "accelerator", "capability", "expected"),
    [
        ("auto", "cuda", (9, 0), "bfloat16"),
        ("auto", "cuda", (8, 0), "bfloat16"),
        ("auto", "cuda", (7, 5), "float16"),
        ("auto", "cuda", (6, 1), "float32"),
        ("auto", "cpu", None, "float32"),
        ("auto", "mps", None, "float32"),
        ("float32", "cuda", (9, 0), "float32"),
        ("bfloat16", "cpu", None, "bfloat16"),
        ("float16", "cuda", (9, 0), "float16"),
        ("float16", "cpu", None, "float32"),
        ("float16", "mps", None, "float32"),
    ],
)
def test_chooses_by_what_the_device_can_do(
    wish: str, accelerator: str, capability: tuple[int, int] | None, expected: str
) -> None:
    precision = choose_precision(wish, accelerator=accelerator, capability=capability)

    assert precision.dtype == expected
    assert precision.is_replaced == (wish not in {"auto", expected})


def test_says_when_a_device_only_emulates_what_was_asked_for() -> None:
    assert "only emulates" in choose_precision("bfloat16", accelerator="cuda", capability=(7, 0)).reason


def test_refuses_an_unknown_dtype_and_lists_those_that_exist() -> None:
    with pytest.raises(ConfigError) as caught:
        manager("bf17")

    assert str(caught.value) == ("managers.amp.dtype: 'bf17' is not a dtype; use auto, float32, bfloat16 or float16")


@pytest.mark.parametrize(
    ("dtype", "lightning"), [("auto", "32-true"), ("bfloat16", "bf16-mixed"), ("float16", "32-true")]
)
def test_lightning_takes_its_precision(dtype: str, lightning: str) -> None:
    amp = manager(dtype)
    trainer = Trainer(
        precision=amp.lightning_precision(),  # type: ignore[arg-type]
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )

    assert amp.lightning_precision() == lightning
    assert trainer.precision == lightning


def test_says_in_one_line_what_is_used_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="project.common.managers.amp")
    reason = "float16 was asked for, but its gradient scaler needs a CUDA device, and this is cpu"
    manager("float16")
    manager("bfloat16")

    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", f"precision: 32-true ({reason})"),
        ("INFO", "precision: bf16-mixed (as configured)"),
    ]


def test_autocast_computes_in_the_chosen_dtype() -> None:
    amp, left, right = manager("bfloat16"), torch.ones(2, 2), torch.ones(2, 2)
    with amp.autocast():
        mixed = left @ right
        with amp.autocast(enabled=False):
            full = left @ right
            assert not amp.is_active
        assert amp.is_active

    assert (mixed.dtype, full.dtype) == (torch.bfloat16, torch.float32)
    assert not amp.is_active


def test_autocast_is_each_threads_own() -> None:
    amp, seen = manager("bfloat16"), []

    def look() -> None:
        seen.append((amp.is_active, (torch.ones(2, 2) @ torch.ones(2, 2)).dtype))

    with amp.autocast():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(60)

    assert seen == [(False, torch.float32)]


def test_autocast_ends_when_the_block_fails() -> None:
    amp = manager("bfloat16")
    with pytest.raises(RuntimeError, match="inner"), amp.autocast():
        raise RuntimeError("inner")

    assert not amp.is_active
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.filterwarnings("error")
def test_full_precision_is_left_alone_without_a_word() -> None:
    amp = manager("float32")
    with amp.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)

    assert product.dtype == torch.float32
    assert not amp.is_mixed
    assert not amp.is_active


@pytest.mark.filterwarnings("error")
def test_without_float16_the_scaler_passes_everything_through() -> None:
    amp, weight = manager("bfloat16"), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    amp.scaler.scale(weight * 0.5).backward()
    amp.scaler.step(optimizer)
    amp.scaler.update()

    assert weight.item() == 0.5
    assert amp.state_dict() == {}


def test_a_scaler_from_another_device_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="project.common.managers.amp")
    amp = manager()
    amp.load_state_dict({"scale": 65536.0, "growth_factor": 2.0})
    amp.load_state_dict({})

    assert [record.message for record in caplog.records][1:] == [
        "the checkpoint's gradient scaler is not needed with float32"
    ]


def test_health_says_when_something_else_is_used_than_asked_for() -> None:
    assert manager("auto").check().ok
    assert not manager("float16").check().ok


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_float16_on_a_device_scales_and_keeps_its_state() -> None:
    cuda = CUDAManager(accelerator="cuda")
    amp, weight = AMPManager(cuda=cuda, dtype="float16"), torch.nn.Parameter(torch.ones(1, device=cuda.device))
    with amp.autocast():
        loss = (weight[:, None] @ weight[None]).sum()
    amp.scaler.scale(loss.float()).backward()

    assert amp.scaler.is_enabled()
    assert weight.grad is not None
    assert weight.grad.item() == pytest.approx(2 * amp.scaler.get_scale())
    other = AMPManager(cuda=cuda, dtype="float16")
    other.load_state_dict(amp.state_dict())
    assert other.state_dict() == amp.state_dict()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_real_device_gets_a_dtype_that_it_can_multiply_in() -> None:
    cuda = CUDAManager(accelerator="cuda")
    amp = AMPManager(cuda=cuda)
    with amp.autocast():
        product = torch.ones(8, 8, device=cuda.device) @ torch.ones(8, 8, device=cuda.device)

    assert product.dtype == amp.dtype
    assert product.sum().item() == 512
