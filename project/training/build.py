"""The parts of a training, each built from the configuration and this process's managers."""

import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from project.common.devices.shared_memory import full_text, is_full
from project.common.errors import ConfigError, StorageError, refused_by
from project.common.files.disk import NO_SPACE
from project.common.files.model_files import describe
from project.common.files.secrets import mask_config
from project.common.managers import (
    get_amp_manager,
    get_cuda_manager,
    get_data_manager,
    get_directory_manager,
    get_model_manager,
    get_tokenizer_manager,
)
from project.common.processes.identity import Identity
from project.common.whitelist import instantiate
from project.training.checkpoint import ManagedCheckpointIO
from project.training.datamodule import batches_per_epoch
from project.training.environment import RankEnvironment, RankStrategy
from project.training.loggers import HistoryLogger
from project.training.module import Module
from project.training.rng import seed_process

log = logging.getLogger(__name__)

# Settings of `trainer` that managers answer.
_NOT_FOR_THE_TRAINER = frozenset({"accelerator", "devices", "num_nodes"})


def quiet_libraries() -> None:
    """Leaves out what libraries say at every start and nobody acts on."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("lightning.pytorch.profilers").setLevel(logging.INFO)  # its report is what it was chosen for
    for message in (
        ".*does not have many workers.*",
        ".*sync_dist=True.*",
        ".*is smaller than the logging interval.*",
        ".*exists and is not empty.*",
        ".*dataloader is not resumable.*",
        ".*find_unused_parameters=True was specified.*",
        ".*was called before the ``update`` method.*",
        ".*GPU available but not used.*",
        ".*LeafSpec.*is deprecated.*",
    ):
        warnings.filterwarnings("ignore", message)


def make_module(
    config: Mapping[str, Any], *, total_steps: int | None = None, described: Mapping[str, str] | None = None
) -> Module:
    """The LightningModule of a configuration, its weights drawn from the seed alone: equal on all ranks.

    Args:
        config: Resolved, plain.
        total_steps: Of the whole training.
        described: The model as a checkpoint describes it, if its weights are loaded next.
    """
    labels = get_data_manager().labels
    n_labels = len(labels) or None
    seed_process(config["seed"])
    model = get_model_manager().build(n_labels=n_labels, described=described)
    if n_labels is None and config["task"]["label_smoothing"]:
        raise ConfigError("task.label_smoothing: spreads a target over classes, and these rows have none; set it to 0")
    counts = get_model_manager().parameter_counts(model)
    log.info("%s: %s parameters, %s trained", type(model).__name__, f"{counts['total']:,}", f"{counts['trainable']:,}")
    module = Module(
        model=model,
        optimizer=config["task"]["optimizer"],
        scheduler=config["task"]["scheduler"],
        warmup_fraction=config["task"]["warmup_fraction"],
        warmup_steps=config["task"]["warmup_steps"],
        label_smoothing=config["task"]["label_smoothing"],
        n_labels=n_labels,
        total_steps=total_steps,
    )
    module.objective = config["objective"]
    tokenizer = get_tokenizer_manager()
    module.facts = {
        "config": mask_config(dict(config)),
        "labels": labels,
        "model": describe(model),
        "data": get_data_manager().fingerprint,
        "tokenizer": tokenizer.as_bytes() if tokenizer.is_configured else None,
    }
    return module


def make_loggers(config: Mapping[str, Any]) -> list[Logger]:
    """The history, and what the `logger` group adds."""
    return [HistoryLogger(), *instantiate_all("logger", config["logger"])]


def instantiate_all(key: str, nodes: Mapping[str, Any]) -> list[Any]:
    """What a group of nodes describes, but for those that are null."""
    built = []
    for name, node in nodes.items():
        if node is not None:
            with refused_by(f"{key}.{name}"):
                built.append(instantiate(node))
    return built


def refuse_late_validation(trainer: Mapping[str, Any], *, n_batches: int) -> None:
    """Raises `ConfigError` for a validation that no epoch is long enough to reach."""
    interval, n_batches = trainer["val_check_interval"], batches_per_epoch(n_batches, trainer)
    if isinstance(interval, int) and interval > n_batches and trainer.get("check_val_every_n_epoch") is not None:
        raise ConfigError(
            f"trainer.val_check_interval: {interval} batches, but an epoch has {n_batches}; use at most that, a share "
            "such as 1.0, or trainer.check_val_every_n_epoch=null, which counts on over epochs"
        )


@contextmanager
def lightning_refuses() -> Iterator[None]:
    """Lets what Lightning finds in the trainer's settings only when it has the loaders be a refusal.

    What fails while Lightning tidies up after an error gives way to that error, and shared memory without room for a
    loader's locks is named.
    """
    try:
        yield
    except MisconfigurationException as error:
        raise ConfigError(f"trainer: Lightning refuses it: {' '.join(str(error).split())}") from error
    except BaseException as error:
        first = before_teardown(error)
        if isinstance(first, OSError) and first.errno in NO_SPACE and first.filename is None and is_full():
            raise StorageError(f"loader: no room for the locks of its workers: {full_text()}") from first
        if first is not error:
            raise first  # noqa: B904 - it came first
        raise


def before_teardown(error: BaseException) -> BaseException:
    """The error that Lightning was tidying up after when `error` came; `error` itself if it was not."""
    while error.__context__ is not None and any(
        frame.f_code.co_name == "_teardown" for frame, _ in traceback.walk_tb(error.__traceback__)
    ):
        error = error.__context__
    return error


def make_trainer(
    config: Mapping[str, Any],
    *,
    identity: Identity,
    callbacks: list[Callback],
    loggers: list[Logger],
    accumulation: int,
) -> Trainer:
    """Lightning's Trainer for this rank."""
    cuda = get_cuda_manager()
    options = {key: value for key, value in config["trainer"].items() if key not in _NOT_FOR_THE_TRAINER}
    if identity.world_size > 1:
        options["strategy"] = _ddp(cuda, identity)
    if cuda.accelerator != "cuda":
        options["devices"] = identity.world_size
    else:
        options["devices"] = "auto" if identity.world_size > 1 else [cuda.device.index or 0]
    return Trainer(
        **options,
        accelerator=cuda.accelerator,
        precision=get_amp_manager().lightning_precision(),
        accumulate_grad_batches=accumulation,
        callbacks=callbacks,
        logger=loggers,
        plugins=[RankEnvironment(identity), ManagedCheckpointIO()],
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=get_directory_manager().run_dir,
    )


def _ddp(cuda: Any, identity: Identity) -> RankStrategy:
    # From three ranks on gloo sums in another order once DDP has rebuilt its buckets, so a resumed run would differ in
    # the last bit; looking for unused parameters keeps DDP from rebuilding.
    keep_buckets = cuda.accelerator == "cpu" and identity.world_size > 2
    return RankStrategy(
        parallel_devices=[cuda.device] * identity.world_size,
        find_unused_parameters=keep_buckets,
    )
