"""Programs of the engines: versions that work, and files of their checkouts."""

from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from stages.base.errors import ConfigError, Problem
from stages.engines.engine import Environment, Window

VERSIONS = Path(__file__).with_name("versions.yaml")


def windows(file: Path, *groups: str) -> tuple[Window, ...]:
    """Return the versions that work, from groups of a YAML file: distribution: [versions, reason]."""
    import yaml  # takes 20 ms, which a run with nothing to do does without

    listed = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tuple((name, *window) for group in groups for name, window in listed[group].items())


def known_versions(packages: str, machine: str, file: Path = VERSIONS) -> Environment:
    """Return the versions in a group of packages, and those of CANN and driver in another."""
    return Environment(windows(file, packages), *windows(file, machine))


def fits(version: str, window: str) -> bool:
    """Return True if `version` is valid and in `window`."""
    try:
        return SpecifierSet(window).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def read(setting: str, home: str, file: str | Path, expected: str, remedy: str = "") -> str:
    """Return the text of a file in the checkout of `expected` that a setting names, or raise ConfigError."""
    try:
        return (Path(home) / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        rule = f"must be a checkout of {expected}: {file} must be readable ({error})"
        raise ConfigError([Problem(setting, home, rule, remedy)]) from None
