"""CPython's own documents, which need no download: its language reference and the docstrings of its library."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from project.tasks.splits import normalise, split_by_group

_NOT_DOCUMENTS = frozenset({"__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

Report = Callable[[int, dict[str, float]], None]


def load_documents(*, min_chars: int = 40, stdlib: str | None = None) -> list[dict[str, str]]:
    """Returns one row per text: `text` and `group`, the topic or the top-level module that it belongs to.

    The texts are the topics of `help()` and the docstrings of the standard library, whose files are parsed and never
    imported. Texts that differ from an earlier one in case, digits and punctuation only are left out, so that a split
    by group has no text twice.

    Args:
        min_chars: shorter texts are left out; they are mostly "Return self.x".
        stdlib: folder of the library's modules; None takes the running Python's.

    Raises:
        ValueError: the library's sources are not there.
    """
    root = Path(stdlib or sysconfig.get_path("stdlib"))
    rows, seen = [], set()
    for group, text in (*_topics(), *_docstrings(root)):
        key = normalise(text)
        if len(text) >= min_chars and key not in seen:
            seen.add(key)
            rows.append({"text": text, "group": group})
    if not any(row["group"].startswith("module ") for row in rows):
        raise ValueError(f"stdlib: there are no Python files with documents in {root}; install the library's sources")
    return rows


def _topics() -> Iterator[tuple[str, str]]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield f"topic {name}", topics[name].strip()


def _docstrings(root: Path) -> Iterator[tuple[str, str]]:
    """Yields the module's name and each docstring of it, in an order that no file system can change."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        module = parts[0].removesuffix(".py")
        if module not in sys.stdlib_module_names or _NOT_DOCUMENTS & set(parts):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
                # `_pydatetime` is what `datetime` is without its C code: they are one document.
                yield f"module {module.removeprefix('_py').lstrip('_')}", text


def unigram(
    *, splits: Mapping[str, Sequence[Mapping[str, Any]]], report: Report = lambda step, metrics: None
) -> dict[str, float]:
    """Returns `unigram/<split>/loss` and `.../perplexity` of a model that knows how frequent each token is.

    Every token counts once more than it was seen, so that new ones have a probability. What is predicted is what a
    causal model predicts: all tokens of a row but its first.

    Args:
        splits: split name to rows with `input_ids`; must have `train`.
        report: told the metrics of each split.
    """
    tokens = {split: [int(token) for row in rows for token in row["input_ids"][1:]] for split, rows in splits.items()}
    counts = Counter(tokens.pop("train"))
    vocabulary = set(counts).union(*tokens.values())
    total = sum(counts.values()) + len(vocabulary)
    metrics: dict[str, float] = {}
    for step, (split, found) in enumerate(tokens.items(), start=1):
        if not found:
            continue
        loss = -sum(n * log((counts[token] + 1) / total) for token, n in Counter(found).items()) / len(found)
        new = {f"unigram/{split}/loss": loss, f"unigram/{split}/perplexity": exp(loss)}
        metrics |= new
        report(step, new)
    return metrics


def run_unigram(
    *,
    rows: Sequence[Mapping[str, Any]],
    fractions: Mapping[str, float],
    split_seed: int = 0,
    tokenizer: Callable[[Iterable[str]], Any],
    max_length: int,
    seed: int = 0,
    report: Report,
) -> dict[str, float]:
    """Splits, tokenises and packs rows as the training does, and returns what `unigram` says of them.

    Args:
        rows: `text` and `group` of each.
        fractions: split name to share.
        split_seed: the split's own seed.
        tokenizer: a function from the training texts to a fast tokenizer.
        max_length: tokens of a block.
        seed: not used: counting draws nothing.
        report: told the metrics of each split.
    """
    splits = split_by_group([dict(row) for row in rows], fractions=fractions, seed=split_seed)
    trained = tokenizer([row["text"] for row in splits["train"]])
    blocks = {}
    for split, part in splits.items():
        ids = [token for found in trained([row["text"] for row in part])["input_ids"] for token in found]
        whole = len(ids) // max_length * max_length
        blocks[split] = [{"input_ids": ids[start : start + max_length]} for start in range(0, whole, max_length)]
    return unigram(splits=blocks, report=report)


def write_sample(
    *,
    model: Any,
    tokenizer: Any,
    folder: Path,
    prompt: str = "Return ",
    max_new_tokens: int = 60,
    temperature: float = 0.8,
    seed: int = 0,
) -> str:
    """Lets a causal model go on with a prompt, writes it to `sample.txt` in `folder` and returns it.

    Prompt and answer together are no longer than what the model reads; of a longer prompt its end is taken.

    Args:
        model: has `generate` of transformers.
        tokenizer: the model's.
        folder: the run's.
        prompt: how the text begins.
        max_new_tokens: tokens that are added at most; less than what the model reads.
        temperature: less than 1 prefers likely tokens; 0 always takes the likeliest.
        seed: of the drawing.

    Raises:
        ValueError: the model cannot generate, or there is no prompt.
    """
    import torch

    if not (hasattr(model, "can_generate") and model.can_generate()):
        raise ValueError(f"model: {type(model).__name__} does not generate text; set task.at_end=null")
    # Without the end token that the tokenizer puts there.
    ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"].to(model.device)
    if not ids.numel():
        raise ValueError(f"prompt: {prompt!r} has no token; give some text")
    context = getattr(model.config, "max_position_embeddings", None) or len(ids[0]) + max_new_tokens
    ids = ids[:, -max(1, context - max_new_tokens) :]
    devices = [model.device] if model.device.type == "cuda" else []
    model.eval()
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(seed)
        drawing = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=min(max_new_tokens, context - len(ids[0])),
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id,
            **drawing,
        )
    text: str = tokenizer.decode(out[0], skip_special_tokens=True)
    (folder / "sample.txt").write_text(text + "\n", encoding="utf-8")
    return text
