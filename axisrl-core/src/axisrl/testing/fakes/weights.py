"""What the scripted trainer and engine agree on about weights. Real pairs use :mod:`axisrl.ops`."""

from __future__ import annotations

import zlib

from axisrl.types import FloatArray


def weights_checksum(weights: FloatArray) -> str:
    """CRC-32 of the array's bytes, as eight hexadecimal digits."""
    return f"{zlib.crc32(weights.tobytes()):08x}"
