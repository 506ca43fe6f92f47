"""Which releases of SGLang the plugin supports, and what is said where another one is installed.

What a release can do is found out from its code where it is needed; nothing depends on its number.
"""

from __future__ import annotations

from importlib import metadata

from packaging.specifiers import SpecifierSet

SUPPORTED = SpecifierSet(">=0.5.12,<0.5.24")
"""Everything called is in the source of every release of the range: ``tests/test_fake.py``."""


def outside() -> str:
    """A sentence that names the release installed and the range; empty for one inside it, and for
    one that does not tell its version."""
    try:
        version = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return ""
    if SUPPORTED.contains(version, prereleases=True):
        return ""
    return f"SGLang {version} is installed, and axisrl-plugin-sglang supports {SUPPORTED}"
