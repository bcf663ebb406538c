"""The extra CA that a GitHub Enterprise Server's certificate needs."""

from __future__ import annotations

from arc_controller.api.core import ConfigMap
from arc_controller.api.v1alpha1 import ServerTLS
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.proxy import Finder
from arc_controller.runtime.objects import NamespacedName

_FIELD = "githubServerTLS.certificateFrom.configMapKeyRef"


async def server_root_ca(reader: Finder, tls: ServerTLS | None, namespace: str) -> str:
    """The PEM text that the spec refers to; ``""`` when it has no ``githubServerTLS``.

    Raises `InputError` when it names no config map, or the config map or its key is missing, and
    `ApiError`.
    """
    if tls is None:
        return ""
    reference = tls.certificate_from.config_map_key_ref if tls.certificate_from else None
    if reference is None or not reference.name:
        raise InputError(
            "CertificateMissing",
            f"{_FIELD} is empty: name a config map and its key, or leave githubServerTLS out",
        )
    key = NamespacedName(namespace, reference.name)
    config_map = await reader.find(ConfigMap, key)
    if config_map is None:
        if reference.optional:
            return ""
        raise InputError("CertificateNotFound", f"{_FIELD}: there is no config map {key}")
    text = config_map.data.get(reference.key, "")
    if not text and not reference.optional:
        raise InputError(
            "CertificateNotFound",
            f"{_FIELD}: the config map {key} has no key {reference.key!r}; it has "
            f"{', '.join(sorted(config_map.data)) or 'none'}",
        )
    return text


def described(tls: ServerTLS | None, namespace: str) -> str:
    """Field, config map and key that the certificate comes from, for an error."""
    reference = tls.certificate_from.config_map_key_ref if tls and tls.certificate_from else None
    if reference is None:
        return _FIELD
    key = NamespacedName(namespace, reference.name)
    return f"{_FIELD}: the key {reference.key!r} of config map {key}"
