"""Brings later changes of the template into a project that was made from it: python -m project.template_update.

The project is made twice more with its own answers, from the version of the template that it has and from the newest
one. What differs between the two is applied to the working tree by git, which knows three sides of each file then.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from project.common.errors import ProjectError

RECORD = ".template.json"
# Made up, since git wants one for its commits: these are seen by nobody.
_NAME = {f"GIT_{who}_{what}": "template" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def main() -> None:
    """Reads the command line; exits with 0, 1 for conflicts, or 2 for what was refused."""
    parser = argparse.ArgumentParser(prog="python -m project.template_update", description=__doc__)
    parser.add_argument("--template", help="folder or git address of the template; default: where it came from")
    parser.add_argument("--to", default="HEAD", help="version of the template to go to; default: its newest")
    parser.add_argument("--since", help="version that the project has; default: the one that it remembers")
    arguments = parser.parse_args()
    try:
        sys.exit(update(Path.cwd(), template=arguments.template, to=arguments.to, since=arguments.since))
    except ProjectError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def update(mine: Path, *, template: str | None = None, to: str = "HEAD", since: str | None = None) -> int:
    """Changes the working tree of the project `mine`; returns 1 when there are conflicts to solve.

    Raises:
        ProjectError: The folder is no repository, has changes that are not committed, or its origin is not known.
    """
    record = _read_record(mine)
    source, since = template or record["template"], since or record["commit"]
    if since is None:
        raise ProjectError(f"{RECORD}: the template's commit was not known; name it: --since COMMIT")
    _require_clean(mine)
    with tempfile.TemporaryDirectory(prefix="template-update-") as scratch:
        clone = Path(scratch) / "template"
        _git(Path(scratch), "clone", "--quiet", source, str(clone))
        commits = [_git(clone, "rev-parse", f"{version}^{{commit}}") for version in (since, to)]
        if commits[0] == commits[1]:
            print(f"nothing to do: the project has {commits[1][:12]} of the template")
            return 0
        sides = [_make(clone, commit, record | {"template": source}, Path(scratch) / commit) for commit in commits]
        base = _commit(mine, sides[0])
        changed = _commit(mine, sides[1], "-p", base)
        return _apply(mine, changed, f"from {commits[0][:12]} to {commits[1][:12]}")


def _read_record(mine: Path) -> dict[str, Any]:
    path = mine / RECORD
    if not path.is_file():
        raise ProjectError(f"{RECORD}: there is none here; only a project that was made from a template can be updated")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _require_clean(mine: Path) -> None:
    if shutil.which("git") is None:
        raise ProjectError("git was not found; it does the merge")
    top = subprocess.run(["git", "rev-parse", "--show-prefix"], cwd=mine, capture_output=True, text=True, check=False)
    if top.returncode or top.stdout.strip():
        raise ProjectError(f"{mine}: is not the top of a git repository; `git init`, `git add -A` and commit first")
    if _git(mine, "status", "--porcelain", "--untracked-files=no"):
        raise ProjectError(f"{mine}: has changes that are not committed; commit or stash them first")


def _make(clone: Path, commit: str, record: dict[str, Any], folder: Path) -> Path:
    """Returns the folder of the project as this version of the template makes it."""
    _git(clone, "checkout", "--quiet", "--force", commit)
    folder.mkdir()
    settings = folder / "cookiecutter.yaml"
    settings.write_text(json.dumps({name: str(folder / name) for name in ("replay_dir", "cookiecutters_dir")}))
    answers = [f"{name}={value}" for name, value in record["answers"].items()]
    options = ["--no-input", "--config-file", str(settings), "--output-dir", str(folder / "made")]
    done = subprocess.run(
        [sys.executable, "-m", "cookiecutter", *options, str(clone), *answers],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise ProjectError(f"the template's version {commit[:12]} made no project: {done.stdout}{done.stderr}")
    (made,) = (folder / "made").iterdir()
    answered = json.loads((made / RECORD).read_text(encoding="utf-8"))["answers"]
    content = {"template": record["template"], "commit": commit, "answers": answered}
    (made / RECORD).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return made


def _commit(mine: Path, folder: Path, *parent: str) -> str:
    """Puts the files of `folder` into the project's repository, where no branch shows them."""
    environ = {"GIT_INDEX_FILE": str(folder.parent / "index"), "GIT_WORK_TREE": str(folder)}
    environ["GIT_DIR"] = str(mine / _git(mine, "rev-parse", "--git-dir"))
    _git(folder, "add", "--all", "--force", environ=environ)
    return _git(folder, "commit-tree", _git(folder, "write-tree", environ=environ), *parent, "-m", "t", environ=environ)


def _apply(mine: Path, commit: str, what: str) -> int:
    done = subprocess.run(
        ["git", "cherry-pick", "--no-commit", "--allow-empty", commit],
        cwd=mine,
        env=os.environ | _NAME,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    conflicts = _git(mine, "diff", "--name-only", "--diff-filter=U").splitlines()
    if conflicts:
        print(f"updated {what}; both changed the same places, which are marked in:", *conflicts, sep="\n    ")
        print("solve them, `git add` them, run the tests and commit")
        return 1
    if done.returncode:
        raise ProjectError(f"git could not apply the changes: {done.stderr.strip()}")
    print(f"updated {what}: look at `git diff --cached`, run the tests and commit")
    return 0


def _git(folder: Path, *arguments: str, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=os.environ | _NAME | (environ or {}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise ProjectError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
