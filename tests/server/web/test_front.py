"""Behind nginx with TLS, as deploy/ has it: cookies are Secure, wrong tokens count for who sent them."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template

import httpx
import pytest
import yaml

from tests.server.conftest import Serve

ROOT = Path(__file__).parents[3]
TOKEN, HOST = "a token of sufficient length", "anticipate.test"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")

pytestmark = pytest.mark.skipif(
    NGINX is None or shutil.which("openssl") is None, reason="needs nginx and openssl (apt install nginx-light)"
)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[tuple[int, int]]:
    """nginx with our file and a certificate signed by itself; its ports for http and https."""
    folder.mkdir()
    subject = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
    keys = ["-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject, *keys],
        check=True,
        capture_output=True,
    )
    plain, secure, gone = free_port(), free_port(), f"127.0.0.1:{free_port()}"
    given = {
        "BALLCAST_HOST": HOST,
        "BALLCAST_UPSTREAM": upstream,
        "MEDIAMTX_HLS": gone,
        "MEDIAMTX_WEBRTC": gone,
        "CERTIFICATES": str(folder),
        "HTTP_PORT": f"127.0.0.1:{plain}",
        "HTTPS_PORT": f"127.0.0.1:{secure}",
    }
    # As the image does it: only names that are in the environment; nginx's own variables stay.
    ours = Template((ROOT / "deploy" / "nginx.conf.template").read_text()).safe_substitute(given)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{ours}\n}}\n"
    )
    assert NGINX is not None
    with subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]) as running:
        try:
            yield plain, secure
        finally:
            running.terminate()


def client_from(address: str, folder: Path, port: int) -> httpx.Client:
    """A client with an address of its own, which knows the certificate."""
    context = ssl.create_default_context(cafile=str(folder / "fullchain.pem"))
    transport = httpx.HTTPTransport(verify=context, local_address=address, retries=5)
    headers = {"Host": f"{HOST}:{port}", "Origin": f"https://{HOST}:{port}"}
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", transport=transport, headers=headers, timeout=20)


def answered(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """The answer, once nginx is there."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return ask()
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_cookies_and_guesses_behind_tls(serving: Serve, tmp_path: Path) -> None:
    server = serving(token=TOKEN, hosts=(HOST,), proxies=("127.0.0.1",), limits={"guesses": 3})
    folder, sni = tmp_path / "nginx", {"sni_hostname": HOST}
    with nginx(folder, server.url.removeprefix("http://")) as (plain, secure):
        with (
            client_from("127.0.0.2", folder, secure) as guesser,
            client_from("127.0.0.3", folder, secure) as user,
            httpx.Client(headers={"Host": HOST}) as other,
        ):
            answered(lambda: guesser.get("/login", extensions=sni))
            claim = {"X-Forwarded-For": "127.0.0.3"}  # to be somebody else
            guesses = [
                guesser.post("/api/login", json={"token": f"wrong {n}"}, extensions=sni, headers=claim)
                for n in range(4)
            ]
            assert [guess.status_code for guess in guesses] == [401, 401, 401, 429]
            done = user.post("/api/login", json={"token": TOKEN}, extensions=sni)
            assert done.status_code == 204, done.text
            cookie = done.headers["set-cookie"].lower()
            assert "; secure" in cookie
            assert "httponly" in cookie
            assert user.get("/api/jobs", extensions=sni).status_code == 200
            assert "strict-transport-security" in done.headers
            assert user.get("/hls/pitch/", extensions=sni).status_code == 502  # MediaMTX is not here
            moved = other.get(f"http://127.0.0.1:{plain}/jobs?a=b")
            assert (moved.status_code, moved.headers["location"]) == (308, f"https://{HOST}/jobs?a=b")
        # Without TLS the cookie is not Secure, or no browser would send it back.
        own = server.client.post("/api/login", json={"token": TOKEN})
        assert "; secure" not in own.headers["set-cookie"].lower()


def test_compose_and_nginx_agree() -> None:
    """The trusted proxy is nginx, every variable of its file is set, and MediaMTX's ports are those it listens at."""

    class Loader(yaml.SafeLoader):
        """Knows compose's tag !reset."""

    Loader.add_constructor("!reset", lambda loader, node: None)
    front = yaml.load((ROOT / "deploy" / "compose.front.yaml").read_text(), Loader)["services"]
    addresses = {name: service["networks"]["front"]["ipv4_address"] for name, service in front.items()}
    command = front["ballcast"]["command"]
    assert command[command.index("--trusted-proxy") + 1] == addresses["nginx"]
    given, text = front["nginx"]["environment"], (ROOT / "deploy" / "nginx.conf.template").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", text)) == set(given)
    assert given["BALLCAST_UPSTREAM"] == f"{addresses['ballcast']}:8000"
    media = yaml.safe_load((ROOT / "deploy" / "mediamtx.yml").read_text())
    assert given["MEDIAMTX_HLS"] == addresses["mediamtx"] + media["hlsAddress"]
    assert given["MEDIAMTX_WEBRTC"] == addresses["mediamtx"] + media["webrtcAddress"]
    published = {port.split(":")[1].split("/")[0] for port in front["mediamtx"]["ports"]}
    listened = [media[key] for key in ("rtspAddress", "rtmpAddress", "srtAddress", "webrtcLocalUDPAddress")]
    assert published == {address.lstrip(":") for address in listened}
    assert json.dumps(command).count("8554") == 1  # the page's stream is MediaMTX's
