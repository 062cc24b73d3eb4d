"""Addresses that the server connects to for its users."""

import socket

import pytest

from ballcast.core.errors import InputError
from ballcast_server.networks import NetworkPolicy


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert NetworkPolicy().allows(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%1",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "2001:0:1::1",
        "fd00:ec2::254",
    ],
)
def test_others_are_not_unless_their_network_is(address: str) -> None:
    assert not NetworkPolicy().allows(address)
    assert NetworkPolicy.parse(["0.0.0.0/0", "::/0"]).allows(address)
    assert not NetworkPolicy.parse(["192.0.2.0/24"]).allows(address)


def test_what_is_sent_here_may_come_to_any_or_to_many() -> None:
    for url in ("udp://239.0.0.1:5000", "udp://@:5000", "rtp://0.0.0.0:5000"):
        NetworkPolicy().check_url(url)
    with pytest.raises(InputError, match="not a public address"):
        NetworkPolicy().check_url("udp://10.0.0.1:5000")


@pytest.mark.parametrize(
    "authority", ["93.184.216.34\\@127.0.0.1", "127.0.0.1[2606:2800::1]", "127.0.0.1%2f", "a b", "ex\tample", "é.org"]
)
def test_where_programs_could_disagree_about_the_host_it_is_refused(authority: str) -> None:
    with pytest.raises(InputError, match="its host is"):
        NetworkPolicy().check_url(f"http://{authority}/a.m3u8")


@pytest.mark.parametrize("found", [["93.184.216.34", "127.0.0.1"], ["fe80::1%eth0"]])
def test_each_address_of_a_name_counts(monkeypatch: pytest.MonkeyPatch, found: list[str]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (ip, 0)) for ip in found])
    with pytest.raises(InputError, match=f"--allow-network {found[-1].partition('%')[0]}$"):
        NetworkPolicy().check_url("http://camera.example/")


def test_a_name_without_an_address_is_refused_only_when_it_is_used() -> None:
    for host in ("no-such-host.invalid", "a" * 64 + ".example", "a..b"):
        NetworkPolicy().check_new(f"http://{host}/")
        with pytest.raises(InputError, match="cannot be resolved"):
            NetworkPolicy().check_url(f"http://{host}/")
