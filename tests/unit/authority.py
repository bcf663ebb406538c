"""Certificates for tests of servers and clients."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority, and certificates from it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        self.file = self._write("ca", self._sign("ca", self._key, authority=True), self._key)

    def certificate(self, name: str, *, expired: bool = False) -> tuple[Path, Path]:
        """Files with a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = self._write(name, self._sign(name, key, expired=expired), key)
        return file, file.with_suffix(".key")

    def _sign(self, name: str, key: Any, *, authority: bool = False, expired: bool = False) -> Any:
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        alternatives = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=authority,
            crl_sign=authority,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(minutes=-1 if expired else 60))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, certificate: Any, key: Any) -> Path:
        file = self._folder / f"{name}.crt"
        file.write_bytes(certificate.public_bytes(s.Encoding.PEM))
        private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        file.with_suffix(".key").write_bytes(private)
        return file
