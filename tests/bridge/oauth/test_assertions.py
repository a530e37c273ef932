"""Tokens for programs and for users of a company: a client's own key, a workload's JWT, an ID token to exchange."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tabrelay.bridge.credentials import CredentialsError
from tabrelay.bridge.oauth.assertions import ID_JAG, IdentityProvider, signed_by
from tests import canary
from tests.bridge.oauth.test_credentials import AdvancedClock, bridge
from tests.support.fake_upstream import Reply
from tests.support.oauth_protected_server import Authority

KEY = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any) -> str:
    made: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.decode()


def workload(audience: str | list[str], **claims: Any) -> str:
    made = jwt.encode({"sub": "job", "aud": audience, "exp": int(time.time()) + 60, **claims}, KEY, algorithm="ES256")
    canary.register(made)
    return made


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (KEY, "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_client_signs_in_with_its_own_key(key: Any, algorithm: str, tmp_path: Path) -> None:
    wish: dict[str, Any] = {"grant": "client_credentials", "client_id": "me", "client_key": pem(key)}
    async with Authority() as server, bridge(server, tmp_path, **wish) as here:
        assert (await here.ask("ping"))["result"] == {}
        form = server.forms[0]
    assert form["client_assertion_type"].endswith("jwt-bearer") and "client_secret" not in form
    claims = jwt.decode(form["client_assertion"], key.public_key(), algorithms=[algorithm], audience=server.base)
    assert claims["iss"] == claims["sub"] == "me" and claims["jti"]


async def test_a_key_of_another_kind_is_refused_with_the_reason() -> None:
    from cryptography.hazmat.primitives.asymmetric import x25519

    with pytest.raises(ValueError, match="neither EC nor RSA"):
        signed_by(pem(x25519.X25519PrivateKey.generate()), "me")


async def test_a_workload_gets_a_token_for_its_jwt_and_reads_it_again_for_the_next(tmp_path: Path) -> None:
    clock, held = AdvancedClock(), [""]

    async def read() -> str:
        return held[0]

    async with Authority() as server:
        held[0] = workload([server.base, "https://other.example"])
        wish: dict[str, Any] = {"grant": "workload_identity", "read_assertion": read}
        async with bridge(server, tmp_path, clock, **wish) as here:
            assert (await here.ask("ping"))["result"] == {}
            form = server.forms[0]
            assert form["grant_type"].endswith("jwt-bearer") and form["assertion"] == held[0]
            assert "client_id" not in form and server.asked["/register"] == 0
            held[0] = workload(server.base, jti="2")
            clock.time += 4000
            assert (await here.ask("ping"))["result"] == {}
            assert server.forms[1]["assertion"] == held[0], "no refresh token is used"


async def test_an_assertion_is_not_sent_to_a_server_that_it_is_not_for(tmp_path: Path) -> None:
    async def read() -> str:
        return workload("https://auth.example")

    async with Authority() as server:
        with pytest.raises(CredentialsError, match=r"for https://auth\.example"):
            async with bridge(server, tmp_path, grant="workload_identity", read_assertion=read):
                pass
        assert server.forms == []
        # A longer name that begins in the same way is another server.

        async def similar() -> str:
            return workload(f"{server.base}.evil.example")

        with pytest.raises(CredentialsError):
            async with bridge(server, tmp_path, grant="workload_identity", read_assertion=similar):
                pass
        assert server.forms == []


async def test_a_token_request_that_is_refused_is_not_repeated(tmp_path: Path) -> None:
    async with Authority() as server:

        async def read() -> str:
            return workload(server.base)

        server.refuses_refresh = True

        async def refuse(reply: Reply) -> None:
            server.asked["refused"] += 1
            await reply.json({"error": "unauthorized_client"}, 400)

        server._token = refuse  # type: ignore[method-assign]
        with pytest.raises(CredentialsError, match="unauthorized_client"):
            async with bridge(server, tmp_path, grant="workload_identity", read_assertion=read):
                pass
        assert server.asked["refused"] == 1


class Company(Authority):
    """An identity provider that exchanges ID tokens for grants."""

    issuer = ""
    issued_type = ID_JAG

    async def _describe(self, reply: Reply) -> None:
        await reply.json({"issuer": self.issuer or self.base, "token_endpoint": f"{self.base}/exchange"})

    async def _handle(self, reply: Reply) -> None:
        if reply.seen.path != "/exchange":
            return await super()._handle(reply)
        from urllib.parse import parse_qsl

        form = dict(parse_qsl(reply.seen.body.decode()))
        self.forms.append(form)
        grant = workload(form["audience"], resource=form["resource"], client_id="me")
        return await reply.json({"access_token": grant, "issued_token_type": self.issued_type, "token_type": "N_A"})


def enterprise(idp: Company, id_token: str) -> dict[str, Any]:
    async def read() -> str:
        return id_token

    canary.register("very-secret")
    return {
        "grant": "enterprise_managed",
        "client_id": "me",
        "client_secret": "very-secret",
        "read_assertion": read,
        "identity_provider": IdentityProvider(idp.base, "me-at-idp"),
    }


async def test_the_identity_provider_of_a_company_lets_its_users_in(tmp_path: Path) -> None:
    async with Authority() as server, Company() as idp:
        id_token = workload("me-at-idp")
        async with bridge(server, tmp_path, **enterprise(idp, id_token)) as here:
            assert (await here.ask("ping"))["result"] == {}
    asked, form = idp.forms[0], server.forms[0]
    assert asked["subject_token"] == id_token and asked["audience"] == server.base and asked["resource"] == server.url
    assert asked["requested_token_type"] == ID_JAG and asked["client_id"] == "me-at-idp"
    assert "very-secret" not in str(asked) and id_token not in str(form)
    assert jwt.decode(form["assertion"], options={"verify_signature": False})["resource"] == server.url


async def test_an_identity_provider_that_is_not_the_one_that_was_named_gets_no_id_token(tmp_path: Path) -> None:
    async with Authority() as server, Company() as idp:
        for issuer, issued_type, reason in (("https://evil.example", ID_JAG, "evil"), ("", "other", "refused")):
            idp.issuer, idp.issued_type = issuer, issued_type
            with pytest.raises(CredentialsError, match=reason):
                async with bridge(server, tmp_path, **enterprise(idp, workload("me-at-idp"))):
                    pass
        assert len(idp.forms) == 1, "only the second one got it"
        assert server.forms == []
