"""Reads the settings of one process, once, with the origin of each value.

Precedence: flag, environment, `siteatlas.toml`, default. What settings there are is declared in
`settings.py`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siteatlas.errors import ConfigurationError
from siteatlas.settings import DECLARATIONS, SETTINGS_FILE, Settings, environment_name


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, and the source of each value."""

    settings: Settings
    origins: Mapping[str, str]


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> LoadedSettings:
    """Read flags, environment and file; raise ConfigurationError naming the invalid value."""
    environment = os.environ if environment is None else environment
    file_path = file or Path(SETTINGS_FILE)
    from_file = _read_settings_file(file_path, must_exist=file is not None)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in DECLARATIONS:
        variable = environment_name(name)
        if name in given:
            values[name], origins[name] = given[name], "flag"
        elif environment.get(variable, "").strip():
            values[name], origins[name] = environment[variable], f"environment {variable}"
        elif name in from_file:
            values[name], origins[name] = from_file[name], f"file {file_path}"
        else:
            origins[name] = "default"
    return LoadedSettings(_convert_settings(values, origins), origins)


def wanted_log_format() -> str:
    """The log format, even if other settings are invalid; `console` by default."""
    chosen = os.environ.get(environment_name("log_format"), "").strip()
    if not chosen:
        with suppress(ConfigurationError):
            chosen = str(
                _read_settings_file(Path(SETTINGS_FILE), must_exist=False).get("log_format")
            )
    return chosen if chosen == "json" else "console"


def _read_settings_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    """Read the settings file, a TOML file; refuse unknown settings."""
    if not path.is_file():
        if must_exist:
            raise ConfigurationError(f"There is no settings file at {path}.")
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as TOML: {error}") from error
    unknown = sorted(set(content) - set(DECLARATIONS))
    if unknown:
        raise ConfigurationError(f"{path} has unknown settings: {', '.join(unknown)}.")
    return content


def _convert_settings(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    """Convert the values of settings to their types; the error says which one is invalid."""
    converted: dict[str, Any] = {}
    for name, value in values.items():
        try:
            converted[name] = DECLARATIONS[name].type.convert(value)
        except ValueError as error:
            raise unusable_setting(name, origins[name], f"{error}.") from error
    return Settings(**converted, given=frozenset(converted))


def unusable_setting(field: str, origin: str, reason: str) -> ConfigurationError:
    """The error for an invalid value, with its name and source."""
    return ConfigurationError(f"{environment_name(field)} (from {origin}) is invalid: {reason}")
