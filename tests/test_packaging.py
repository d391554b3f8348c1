"""What several files declare agrees."""

import configparser
import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.packages import ROOT, pinned_version, read_lock, read_requirements


def read_setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def is_within(requirement: Requirement, pin: Requirement) -> bool:
    return requirement.specifier.contains(pinned_version(pin), prereleases=True)


def declared_requirements() -> list[Requirement]:
    config = read_setup_cfg()
    dev = config["options.extras_require"]["dev"]
    return read_requirements(config["options"]["install_requires"] + "\n" + dev)


def test_every_declared_package_is_locked_within_its_range() -> None:
    lock = read_lock()
    declared = declared_requirements()

    assert len(declared) > 30
    for requirement in declared:
        pin = lock.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} is not in requirements.lock; `make lock` adds it"
        assert is_within(requirement, pin), f"{requirement} is locked as {pin}"


def test_the_lock_holds_all_that_locked_packages_need() -> None:
    lock = read_lock()
    installed = {canonicalize_name(d.name): d for d in importlib.metadata.distributions()}
    versions = {name: distribution.version.split("+")[0] for name, distribution in installed.items()}
    known = [name for name, pin in lock.items() if versions.get(name) == pinned_version(pin)]
    if len(known) < len(lock) / 2:
        pytest.skip("this environment was not installed from requirements.lock")

    for name in known:
        # torch's build decides which of CUDA's libraries it needs: the lock serves every build.
        for requirement in map(Requirement, installed[name].requires or [] if name != "torch" else []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed = lock.get(canonicalize_name(requirement.name))
                assert needed is not None, f"{name} needs {requirement}, which is not locked"
                assert is_within(requirement, needed), f"{name} needs {requirement}, locked is {needed}"


def test_the_lock_pins_each_package_once_and_names_no_place() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = read_requirements(text)

    assert len(lines) == len(read_lock())
    for line in lines:
        assert re.fullmatch(r"==[^+*,]+", str(line.specifier)), f"{line} is not one public version"
    assert "://" not in text
    assert " @ " not in text


def test_conda_takes_the_same_pins_and_pythons() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    config = read_setup_cfg()
    from_pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    python = next(Requirement(entry) for entry in environment["dependencies"] if str(entry).startswith("python"))
    classified = re.findall(r"Python :: (3\.\d+)", config["metadata"]["classifiers"])

    assert from_pip == ["-r requirements.lock", "-e ."]
    assert environment["name"] == config["metadata"]["name"]
    assert classified[-1] == "3.14"
    assert all(python.specifier.contains(f"{version}.1") for version in classified)
    assert config["options"]["python_requires"] == f">={classified[0]}"


def test_ci_tries_every_python_that_is_classified() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["check"]
    classified = re.findall(r"Python :: (3\.\d+)", read_setup_cfg()["metadata"]["classifiers"])

    assert job["strategy"]["matrix"]["python"] == classified
    assert [step["run"] for step in job["steps"] if "run" in step] == [
        "make install",
        "make lint",
        "make chaos ARGS=--subset",
        # begin template
        "make template",
        # end template
        "make test",
    ]


def test_the_licence_is_the_one_that_is_declared() -> None:
    texts = {
        "Apache-2.0": "END OF TERMS AND CONDITIONS",
        "MIT": "MIT License",
        "BSD-3-Clause": "BSD 3-Clause License",
        "": "All rights reserved",
    }
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert texts[read_setup_cfg()["metadata"].get("license", "")] in licence


@pytest.mark.slow
def test_the_wheel_holds_all_of_the_package_and_the_configuration_but_what_is_local(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    for name in ("project", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "local"))
    expected = {path.relative_to(source).as_posix() for path in (source / "project").rglob("*") if path.is_file()}
    expected |= {f"project/{path.relative_to(source).as_posix()}" for path in (source / "conf").rglob("*.yaml")}
    (source / "conf/local").mkdir()
    (source / "conf/local/mine.yaml").touch()

    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "."], cwd=source, check=True, timeout=110)

    (wheel,) = tmp_path.glob("project-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
    assert names == expected | {"project/conf/__init__.py"}
    assert "project-train = project.train:main" in metadata
