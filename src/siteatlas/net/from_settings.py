"""Builds the allow list and the proxy from the settings.

`settings_loading.py` reads the settings and knows nothing about this package.
"""

from __future__ import annotations

from siteatlas.errors import ConfigurationError
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.proxy import Proxy
from siteatlas.settings import Settings
from siteatlas.settings_loading import LoadedSettings, unusable_setting


def configured_proxy(settings: Settings) -> Proxy | None:
    """The operator's proxy; None without one, ConfigurationError for an unusable address."""
    return Proxy.parse(settings.proxy.get_secret_value()) if settings.proxy else None


def require_usable(loaded: LoadedSettings) -> None:
    """Raise ConfigurationError, with name and origin, for an unusable allow list or proxy."""
    field = "egress_allow"
    try:
        EgressPolicy.from_text(loaded.settings.egress_allow)
        field = "proxy"
        configured_proxy(loaded.settings)
    except ConfigurationError as error:
        raise unusable_setting(field, loaded.origins[field], error.message) from error
