"""Settings as people may see them: secrets are masked."""

from __future__ import annotations

import re

from siteatlas.setting_types import Secret

PASSWORD = re.compile(r"(://[^:@/?]*):.*@")
# Some proxies take a key in the place of the user name.
CREDENTIALS = re.compile(r"://.*@")
PASSWORD_IN_QUERY = re.compile(r"(?i)([?&][a-z_]*password=)[^&]*")


def displayed_value(name: str, value: object) -> str | int | float | None:
    """The value of a setting as `siteatlas config show` and the dashboard show it."""
    if isinstance(value, Secret):
        shown = masked_url(value.get_secret_value())
        return CREDENTIALS.sub("://***@", shown) if name == "proxy" else shown
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value)


def masked_url(url: str) -> str:
    """A URL with its password masked; an invalid URL is hidden."""
    if "://" not in url:
        return "***"
    return PASSWORD_IN_QUERY.sub(r"\1***", PASSWORD.sub(r"\1:***@", url))
