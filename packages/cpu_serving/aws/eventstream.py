"""Writes frames of application/vnd.amazon.eventstream.

Source: https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html#streaming-event-stream
"""

import json
import struct
from binascii import crc32

STRING = 7
CONTENT_TYPE = "application/vnd.amazon.eventstream"


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message: lengths and their checksum, headers, payload, checksum of it all."""
    packed = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack(">I", crc32(prelude)) + packed + payload
    return message + struct.pack(">I", crc32(message))


def payload_part(data: bytes) -> bytes:
    """A PayloadPart event with ``data`` as it is."""
    return frame(
        {":message-type": "event", ":event-type": "PayloadPart", ":content-type": "application/octet-stream"}, data
    )


def stream_exception(name: str, **members: str) -> bytes:
    """An error in the middle of a stream: botocore raises it from the iteration."""
    headers = {":message-type": "exception", ":exception-type": name, ":content-type": "application/json"}
    return frame(headers, json.dumps(members).encode())


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    return struct.pack("B", len(name)) + name.encode() + struct.pack(">BH", STRING, len(text)) + text
