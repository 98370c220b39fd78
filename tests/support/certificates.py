"""A throwaway certificate for servers of tests, and the contexts of both sides."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["client_context", "made_certificate", "server_context"]


def made_certificate(folder: Path) -> Path:
    """Make a certificate with its key, in one file of *folder*."""
    key, made, both = (folder / name for name in ("key", "crt", "both.pem"))
    subprocess.run(  # noqa: S603 - fixed arguments
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",  # noqa: S607
         "-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_bytes(key.read_bytes() + made.read_bytes())
    return both


def server_context(certificate: Path) -> ssl.SSLContext:
    """Make the context of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def client_context() -> ssl.SSLContext:
    """Make a client's context that checks nothing: whom it talks to is not what is tested."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
