"""HTTP/3 by aioquic: a download of 64 MiB over loopback, all of it through our transports."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import random

import pytest
from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

BODY = random.Random(64).randbytes(64 << 20)


class Server(QuicConnectionProtocol):
    """Answers every request with the body."""

    http: H3Connection | None = None

    def quic_event_received(self, event: QuicEvent) -> None:
        self.http = self.http or H3Connection(self._quic)
        for told in self.http.handle_event(event):
            if isinstance(told, HeadersReceived):
                self.http.send_headers(told.stream_id, [(b":status", b"200")])
                self.http.send_data(told.stream_id, BODY, end_stream=True)
                self.transmit()


class Client(QuicConnectionProtocol):
    """Asks once, and hashes what comes."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.http = H3Connection(self._quic)
        self.size = 0
        self.hash = hashlib.sha256()
        self.ended = asyncio.get_running_loop().create_future()

    def get(self, path: bytes) -> None:
        stream = self._quic.get_next_available_stream_id()
        named = {b":method": b"GET", b":scheme": b"https", b":authority": b"localhost"}
        self.http.send_headers(stream, [*named.items(), (b":path", path)], end_stream=True)
        self.transmit()

    def quic_event_received(self, event: QuicEvent) -> None:
        for told in self.http.handle_event(event):
            if isinstance(told, DataReceived):
                self.size += len(told.data)
                self.hash.update(told.data)
                if told.stream_ended:
                    self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("closed before the body's end"))


@pytest.fixture(scope="module")
def configurations() -> tuple[QuicConfiguration, QuicConfiguration]:
    """A server's and a client's, who trust the same certificate of ``localhost``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    server = QuicConfiguration(
        is_client=False, alpn_protocols=H3_ALPN, certificate=certificate, private_key=key
    )
    client = QuicConfiguration(
        is_client=True,
        alpn_protocols=H3_ALPN,
        server_name="localhost",
        cadata=certificate.public_bytes(serialization.Encoding.PEM),
    )
    return server, client


async def test_a_download_of_64_mib_by_http3_arrives_as_it_was(transports, configurations):
    server_configuration, client_configuration = configurations
    server = await serve("127.0.0.1", 0, configuration=server_configuration, create_protocol=Server)
    port = transports[0].get_extra_info("sockname")[1]

    async with connect(
        "127.0.0.1", port, configuration=client_configuration, create_protocol=Client
    ) as client:
        assert isinstance(client, Client)
        client.get(b"/")
        await client.ended
    server.close()

    assert client.size == len(BODY)
    assert client.hash.digest() == hashlib.sha256(BODY).digest()
    assert len(transports) == 2
