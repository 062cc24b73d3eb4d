"""Who counts as one, for turns and for guesses; cookies; the table of wrong tokens."""

import time

import pytest

from ballcast.web import auth as auth_module
from ballcast.web.auth import COOKIE, TokenAuth
from ballcast.web.guard import user_of
from ballcast.web.settings import Limits, RequestError


def user(address: str) -> str:
    return user_of({"type": "http", "client": (address, 1234)})


def test_a_host_with_many_addresses_is_one_user() -> None:
    """An IPv6 host has a /64 of its own; IPv4 hosts have one address, also where they come in over IPv6."""
    assert user("2001:db8:0:7::1") == user("2001:db8:0:7:ffff:ffff:ffff:ffff")
    assert user("2001:db8:0:7::1") != user("2001:db8:0:8::1")
    assert user("fe80::1%eth0") == user("fe80::2%eth0")
    assert user("192.0.2.1") != user("192.0.2.2")
    assert user("::ffff:192.0.2.1") == user("192.0.2.1")
    assert user("::ffff:192.0.2.1") != user("::ffff:192.0.2.2")
    assert user("no address") == "no address"
    assert user_of({"type": "http"}) == "local"


def test_guesses_from_one_network_count_together() -> None:
    auth = TokenAuth("the right token, long enough", Limits(guesses=3))
    assert not any(auth.check("wrong", f"2001:db8:0:7::{i}") for i in range(3))
    with pytest.raises(RequestError, match="too many wrong tokens"):
        auth.check("the right token, long enough", "2001:db8:0:7:8000::9")
    assert auth.check("the right token, long enough", "2001:db8:0:8::1")


def test_a_long_cookie_costs_nothing() -> None:
    """Before: two seconds on the event loop for each, of `SimpleCookie`'s quadratic unquoting."""
    auth = TokenAuth("the right token, long enough", Limits())
    evil = 'a="' + '\\"' * 15_000 + '"'
    began = time.monotonic()
    for name in ("a", COOKIE):
        assert not auth.authenticate("", f"{name}{evil[1:]}", "192.0.2.1")
    assert time.monotonic() - began < 0.2


@pytest.mark.parametrize("header", ["{}", "a=1; {}", "a=1;{} ; b=2", "bad cookie; @=[]; {}; =", "other{}; {}"])
def test_the_session_cookie_among_others(header: str) -> None:
    auth = TokenAuth("the right token, long enough", Limits())
    assert auth.authenticate("", header.replace("{}", f"{COOKIE}={auth.session}"), "192.0.2.1")
    assert not auth.authenticate("", header.replace("{}", f"{COOKIE}={auth.session[:-1]}"), "192.0.2.1")
    assert not auth.authenticate("", header.replace("{}", f"x{COOKIE}={auth.session}"), "192.0.2.1")


def test_a_full_table_of_wrong_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: an IndexError when the guesser's own guesses had expired and the table was full."""
    monkeypatch.setattr(auth_module, "MAX_ADDRESSES", 2)
    auth = TokenAuth("the right token, long enough", Limits(guesses=2, guesses_s=0.05))
    for _ in range(2):
        assert not any(auth.check("wrong", address) for address in ("192.0.2.1", "192.0.2.2"))
        time.sleep(0.06)
    assert not auth.check("wrong", "192.0.2.1")
    assert not auth.check("wrong", "192.0.2.3")  # in place of 192.0.2.2, whose last one is the oldest
    assert not auth.check("wrong", "192.0.2.1")
    with pytest.raises(RequestError, match="too many wrong tokens"):
        auth.check("wrong", "192.0.2.1")
