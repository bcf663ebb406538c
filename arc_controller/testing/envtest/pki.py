"""Certificates, keys and tokens of a server that lives for one test run."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from jwt.algorithms import ECAlgorithm

_LIFETIME = timedelta(days=365)


@dataclass(frozen=True)
class Authority:
    """A certificate authority; `new` makes one, `issue` signs server certificates with it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, now: datetime) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("envtest-ca")
        certificate = (
            _builder(name, name, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, folder: Path, name: str, hosts: Sequence[str], now: datetime) -> None:
        """Writes ``NAME.crt`` and ``NAME.key`` for a server reached under ``hosts``."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative = [_general_name(host) for host in hosts]
        certificate = (
            _builder(self.certificate.subject, _name(name), key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
            )
            .add_extension(x509.SubjectAlternativeName(alternative), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_private(folder / f"{name}.key", private_pem(key))


@dataclass(frozen=True)
class TokenIssuer:
    """Signs tokens that say who somebody is, which the API server trusts (a JWT authenticator).

    Unlike a token file, which the API server reads once, this makes users while it runs.
    """

    url: str
    audience: str
    key: ec.EllipticCurvePrivateKey

    KEY_ID = "envtest"

    def token(self, username: str, groups: Sequence[str], now: datetime) -> str:
        claims = {
            "iss": self.url,
            "aud": self.audience,
            "sub": username,
            "groups": list(groups),
            "iat": now - timedelta(minutes=1),
            "exp": now + _LIFETIME,
        }
        return jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": self.KEY_ID})

    def key_set(self) -> dict[str, object]:
        """The public half, in the form that the API server fetches (RFC 7517)."""
        public = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": self.KEY_ID, "use": "sig", "alg": "ES256"}]}


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def utc_now() -> datetime:
    return datetime.now(UTC)


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not ca,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
