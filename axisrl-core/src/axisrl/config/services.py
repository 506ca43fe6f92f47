"""Checks the names of a run's services: components find them in ``BuildContext.services``, beside
what the core puts there. It knows names alone, no component."""

from __future__ import annotations

import re
from collections.abc import Collection

RESERVED = ("model", "environ", "store", "tokenizer", "verifiers", "console")
"""Names under which the core itself puts something into ``BuildContext.services``."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def check_service_names(names: Collection[str]) -> None:
    """Raise ``ValueError`` for a name that is taken, or that could not name a resource group."""
    for name in names:
        if name in RESERVED:
            raise ValueError(
                f"services.{name}: the core itself offers a service {name!r} to components; "
                "choose another name"
            )
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"services.{name}: a service's name is a letter, then letters, digits, - and _"
            )
