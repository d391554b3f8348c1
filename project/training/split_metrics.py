"""The metrics of one split: loss and scores, updated by batch, exact over batches and ranks."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric

from project.common.managers import get_metrics_manager

_MOST_LABELS = 500  # whose pairs are counted: a quarter of a million


class SplitMetrics(nn.Module):
    """Loss and scores of a split. A module, so that its sums move to the device with the model's.

    Args:
        split: First part of the metrics' names.
        n_labels: Classes; None when rows have no label.
    """

    def __init__(self, split: str, *, n_labels: int | None) -> None:
        super().__init__()
        metrics = get_metrics_manager()
        self.split = split
        self.loss = metrics.mean()
        self.scores = metrics.collection(split, n_labels=n_labels)
        self.confusion = _confusion_matrix(n_labels) if split == "test" else None
        self.counts: list[list[int]] | None = None  # label by prediction, of the last `compute`
        # A language model's scores would gather every token's logits: its loss says it all.
        self._has_perplexity = n_labels is None

    @property
    def names(self) -> list[str]:
        """What `compute` gives."""
        perplexity = [f"{self.split}/perplexity"] if self._has_perplexity else []
        return [f"{self.split}/loss", *perplexity, *self.scores.keys()]

    def update(self, outputs: Any, labels: Tensor) -> None:
        """Adds a batch."""
        self.loss.update(outputs.loss, weight=n_targets(labels))
        if len(self.scores):
            self.scores.update(outputs.logits.detach(), labels)
        if self.confusion is not None:
            self.confusion.update(outputs.logits.detach().argmax(dim=-1), labels)

    def compute(self) -> dict[str, Tensor]:
        """One number a metric for the rows of all ranks, and starts afresh; what is not one number is left out."""
        loss = self.loss.compute()
        values = {f"{self.split}/loss": loss, **self.scores.compute()}
        if self._has_perplexity:
            values[f"{self.split}/perplexity"] = loss.exp()
        self.loss.reset()
        self.scores.reset()
        if self.confusion is not None:
            self.counts = self.confusion.compute().tolist()
            self.confusion.reset()
        return {name: value for name, value in values.items() if value.numel() == 1}

    @property
    def n_updates(self) -> int:
        """Batches since the start."""
        return self.loss._update_count

    def states(self) -> dict[str, dict[str, Any]]:
        """This rank's sums, as plain tensors."""
        return {
            name: {"n_updates": metric._update_count}
            | {key: _copied(value) for key, value in metric.metric_state.items()}
            for name, metric in self._metrics()
        }

    def load_states(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """The inverse of `states`."""
        for name, metric in self._metrics():
            state = dict(states.get(name, {}))
            metric._update_count = state.pop("n_updates", 0)
            for key, value in state.items():
                setattr(metric, key, _copied(value, device=metric.device))

    def _metrics(self) -> list[tuple[str, Metric]]:
        return [("loss", self.loss), *self.scores.items(keep_base=True)]


def _confusion_matrix(n_labels: int | None) -> Metric | None:
    if n_labels is None or not 2 <= n_labels <= _MOST_LABELS:
        return None
    from torchmetrics.classification import MulticlassConfusionMatrix

    return MulticlassConfusionMatrix(n_labels, validate_args=False)


def n_targets(labels: Tensor) -> int | Tensor:
    """What a batch's mean loss is a mean over: rows, or the tokens that a language model predicts."""
    return len(labels) if labels.dim() == 1 else (labels[:, 1:] != -100).sum()


def _copied(value: Any, *, device: Any = None) -> Any:
    if isinstance(value, list):
        return [_copied(item, device=device) for item in value]
    copied = value.detach().clone()
    return copied if device is None else copied.to(device)
