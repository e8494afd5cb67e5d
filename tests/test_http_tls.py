"""TLS: certificates, contexts, tunnels, and what speaks none."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from sandboxsync.errors import (
    ConfigurationError,
    RequestTimeoutError,
    TransportError,
)
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._retry import Kind
from tests._http import (
    KEY,
    ONCE_ONLY,
    QUICK,
    echo,
    get,
    in_child,
    stall,
)
from tests._loopback import Peer, Received, Server, each


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file, signed by itself."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    key = path.with_name("key.pem")
    if shutil.which("openssl") is None:
        if os.environ.get("SANDBOXSYNC_REQUIRE_ALL") == "1":
            pytest.fail("TLS is not tested: openssl not installed")
        pytest.skip("TLS is not tested: openssl not installed")
    done = subprocess.run([*command.split(), "-keyout", str(key)], check=True, capture_output=True)
    path.write_bytes(key.read_bytes() + done.stdout)
    return path


def test_tls(certificate: Path) -> None:
    """A trusted certificate is accepted, one that is not is told in a sentence, and not tried again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Server(each(echo), context) as server:
        with closing(Connection(server.url, api_key=KEY, verify=str(certificate))) as connection:
            assert get(connection).status == 200
            body = [b"x" * 2**20] * 5
            assert len(connection.request("PUT", "/f", kind=Kind.ONCE, body=body).read()) == 5 * 2**20 + 7
            assert server.connections == 1
            assert in_child(lambda: get(connection)) == 0
            assert get(connection).status == 200
        with closing(Connection(server.url, api_key=KEY, retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="its certificate is not valid") as caught:
                get(connection)
            assert (caught.value.code, caught.value.retryable) == ("TLS_ERROR", False)
    with Server(each(echo), context) as server:
        other_name = server.url.replace("127.0.0.1", "localhost")
        with closing(Connection(other_name, verify=str(certificate), retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="localhost") as caught:
                get(connection)
            assert caught.value.code == "TLS_ERROR"
    with Server(each(echo), context) as server, closing(Connection(server.url, verify=False)) as connection:
        with pytest.warns(Warning, match="Unverified HTTPS"):
            assert get(connection).status == 200
    with Server(stall, context) as server:
        with closing(Connection(server.url, verify=str(certificate), read_timeout=0.2, retry=ONCE_ONLY)) as connection:
            with pytest.raises(RequestTimeoutError, match="did not answer"):
                get(connection)
            with pytest.raises(RequestTimeoutError, match="whole call"):
                get(connection, total_timeout=0.1)


def test_a_tunnel_through_a_proxy(certificate: Path) -> None:
    """Https goes through a proxy unseen; what is said to the proxy does not count as sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    asked: list[Received] = []

    def tunnel(peer: Peer) -> None:
        request = peer.receive()
        assert request is not None
        asked.append(request)
        host, _, port = request.path.partition(":")
        with socket.create_connection((host, int(port))) as there:
            peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            thread = threading.Thread(target=pump, args=(there, peer.sock))
            thread.start()
            pump(peer.sock, there)
            thread.join()

    with Server(each(echo), context) as server, Server(tunnel) as proxy:
        options = {"https": proxy.url.replace("http://", "http://user:hunter2@")}
        with closing(Connection(server.url, api_key=KEY, verify=str(certificate), proxies=options)) as connection:
            assert get(connection).read() == b"GET\n/x\n"
            assert get(connection).read() == b"GET\n/x\n"
    (request,) = asked
    assert request.method == "CONNECT"
    assert request.headers["proxy-authorization"].startswith("Basic ")
    assert "authorization" not in request.headers

    def hang_up(peer: Peer) -> None:
        peer.receive()

    with Server(hang_up) as proxy:
        options = {"https": proxy.url}
        with closing(Connection("https://service.example", proxies=options, retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="through the proxy"):
                get(connection, kind=Kind.ONCE)
            assert proxy.connections == QUICK.attempts


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Send on what comes, then its end."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_bundle_of_the_environment(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`REQUESTS_CA_BUNDLE` counts as it does for requests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with Server(each(echo), context) as server, closing(Connection(server.url)) as connection:
        assert get(connection).status == 200
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    with Server(each(echo), context) as server, closing(Connection(server.url)) as connection:
        with pytest.raises(ConfigurationError, match="REQUESTS_CA_BUNDLE"):
            get(connection)


def test_tls_to_what_speaks_none() -> None:
    """Https to a port that speaks http is told as such, and not tried again."""

    def plain(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with Server(plain) as server:
        with closing(Connection(server.url.replace("http:", "https:"), retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="TLS failed") as caught:
                get(connection)
            assert caught.value.code == "TLS_ERROR"
            assert server.connections == 1


def test_a_handshake_that_stalls() -> None:
    """The connect limit holds for TLS too, and says so."""
    stop = threading.Event()

    def deaf(peer: Peer) -> None:
        stop.wait(20)

    with Server(deaf) as server:
        url = server.url.replace("http:", "https:")
        with closing(Connection(url, connect_timeout=0.2, retry=ONCE_ONLY)) as connection:
            with pytest.raises(RequestTimeoutError, match=r"cannot connect to .* within 0\.2 s") as caught:
                get(connection)
            assert caught.value.code == "CONNECT_TIMEOUT"
        with closing(Connection(url, retry=ONCE_ONLY)) as connection:
            with pytest.raises(RequestTimeoutError):
                get(connection, total_timeout=0.2)
        stop.set()
