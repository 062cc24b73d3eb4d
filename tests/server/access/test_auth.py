"""Who counts as one, for turns and for guesses; cookies; the table of wrong tokens."""

import time

import pytest

from ballcast_server.access import auth as auth_module
from ballcast_server.access.auth import COOKIE, TokenAuth
from ballcast_server.settings import Limits, RequestError
from ballcast_server.web.guard import user_of

RIGHT = "the right token, long enough"


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
    auth = TokenAuth(RIGHT, Limits(guesses=3))
    assert not any(auth.check(f"wrong {i}", f"2001:db8:0:7::{i}") for i in range(3))
    with pytest.raises(RequestError, match="too many wrong tokens"):
        auth.check(RIGHT, "2001:db8:0:7:8000::9")
    assert auth.check(RIGHT, "2001:db8:0:8::1")


def test_a_long_cookie_costs_nothing() -> None:
    """Before: two seconds on the event loop for each, of `SimpleCookie`'s quadratic unquoting."""
    auth = TokenAuth(RIGHT, Limits())
    evil = 'a="' + '\\"' * 15_000 + '"'
    began = time.monotonic()
    for name in ("a", COOKIE):
        assert not auth.authenticate("", f"{name}{evil[1:]}", "192.0.2.1")
    assert time.monotonic() - began < 0.2


@pytest.mark.parametrize("header", ["{}", "a=1; {}", "a=1;{} ; b=2", "bad cookie; @=[]; {}; =", "other{}; {}"])
def test_the_session_cookie_among_others(header: str) -> None:
    auth = TokenAuth(RIGHT, Limits())
    session = auth.new_session()
    assert auth.authenticate("", header.replace("{}", f"{COOKIE}={session}"), "192.0.2.1")
    assert not auth.authenticate("", header.replace("{}", f"{COOKIE}={session[:-1]}"), "192.0.2.1")
    assert not auth.authenticate("", header.replace("{}", f"x{COOKIE}={session}"), "192.0.2.1")


def test_sessions_are_random_and_end() -> None:
    """Before: one cookie for all, a hash of the token, valid as long as the token."""
    auth = TokenAuth(RIGHT, Limits(session_s=0.3))
    first, second = auth.new_session(), auth.new_session()
    assert first != second
    auth.end_session(f"{COOKIE}={first}")
    assert not auth.check_session(f"{COOKIE}={first}")
    assert auth.check_session(f"{COOKIE}={second}")
    time.sleep(0.35)
    assert not auth.check_session(f"{COOKIE}={second}")
    assert not TokenAuth(RIGHT, Limits()).check_session(f"{COOKIE}={second}")


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_module, "MAX_SESSIONS", 3)
    auth = TokenAuth(RIGHT, Limits())
    sessions = [auth.new_session() for _ in range(4)]
    assert [auth.check_session(f"{COOKIE}={session}") for session in sessions] == [None, "admin", "admin", "admin"]


def test_wrong_cookies_are_counted_as_wrong_tokens_are() -> None:
    """Before: cookies could be guessed without limit."""
    auth = TokenAuth(RIGHT, Limits(guesses=3))
    assert not any(auth.authenticate("", f"{COOKIE}=guess{i}", "192.0.2.1") for i in range(2))
    assert not auth.check("wrong", "192.0.2.1")
    with pytest.raises(RequestError, match="too many wrong tokens"):
        auth.authenticate("", f"{COOKIE}=guess3", "192.0.2.1")
    with pytest.raises(RequestError, match="too many wrong tokens"):
        auth.check(RIGHT, "192.0.2.1")
    assert auth.authenticate("", f"{COOKIE}={auth.new_session()}", "192.0.2.1")  # a session cannot be guessed


def test_cookies_beside_a_wrong_token_are_counted() -> None:
    auth = TokenAuth(RIGHT, Limits(guesses=3))
    for i in range(2):
        assert not auth.authenticate("Bearer the same", f"{COOKIE}=guess{i}", "192.0.2.1")
    with pytest.raises(RequestError, match="too many wrong tokens"):
        auth.authenticate("Bearer the same", f"{COOKIE}=guess2", "192.0.2.1")


def test_an_expired_cookie_that_is_sent_again_is_one_guess() -> None:
    """A page that was left open asks every two seconds; its user can log in again."""
    auth = TokenAuth(RIGHT, Limits(guesses=3))
    assert not any(auth.authenticate("", f"{COOKIE}=expired", "192.0.2.1") for _ in range(100))
    assert auth.check(RIGHT, "192.0.2.1")


def test_a_full_table_makes_no_guess_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: new addresses pushed old ones out of the table, which could then guess again."""
    monkeypatch.setattr(auth_module, "MAX_ADDRESSES", 2)
    monkeypatch.setattr(auth_module, "SHARED", 1)
    auth = TokenAuth(RIGHT, Limits(guesses=2))
    for address in ("192.0.2.1", "192.0.2.2"):
        assert not any(auth.check(f"wrong {i}", address) for i in range(2))
    assert not any(auth.check(f"wrong {i}", f"192.0.2.{3 + i}") for i in range(2))  # one counter for both
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.9"):
        with pytest.raises(RequestError, match="too many wrong tokens"):
            auth.check("wrong again", address)


def test_a_full_table_of_wrong_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: an IndexError when the guesser's own guesses had expired and the table was full."""
    monkeypatch.setattr(auth_module, "MAX_ADDRESSES", 2)
    auth = TokenAuth(RIGHT, Limits(guesses=2, guesses_s=0.05))
    for _ in range(2):
        assert not any(auth.check("wrong", address) for address in ("192.0.2.1", "192.0.2.2"))
        time.sleep(0.06)
    assert not auth.check("wrong", "192.0.2.1")
    assert not auth.check("wrong", "192.0.2.3")  # in place of 192.0.2.2, whose wrong ones have expired
    assert not auth.check("wrong too", "192.0.2.1")
    with pytest.raises(RequestError, match="too many wrong tokens"):
        auth.check("wrong as well", "192.0.2.1")
