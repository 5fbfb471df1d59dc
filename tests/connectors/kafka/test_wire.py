"""Messages to brokers: the wire format, the proof of a password, and malformed responses."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.connectors.kafka import requests
from sparkjet.connectors.kafka.scram import Scram, ScramError
from sparkjet.connectors.kafka.wire import Decoder, Encoder, WireError
from tests.laws import law


@law(100)
@given(st.integers(-(2**63), 2**63 - 1), st.text(max_size=50), st.integers(0, 2**31), st.lists(st.text(max_size=9)))
def test_what_is_written_is_read_back(number: int, text: str, length: int, texts: list[str]) -> None:
    encoder = Encoder().int64(number).string(text).unsigned(length)
    encoder.compact_array(texts, encoder.compact_string).no_tags().data(b"\0x")
    decoder = Decoder(encoder.encoded())
    assert (decoder.int64(), decoder.string(), decoder.unsigned()) == (number, text, length)
    assert decoder.compact_array(decoder.compact_string) == texts
    decoder.skip_tags()
    assert decoder.data() == b"\0x"


@law(100)
@given(st.binary(max_size=60), st.sampled_from(["metadata", "coordinator", "described", "listed", "setting"]))
def test_a_malformed_answer_is_refused_and_never_an_endless_loop(answer: bytes, kind: str) -> None:
    parse = {
        "metadata": requests.metadata(["t"]).parse,
        "coordinator": requests.find_coordinator("t").parse,
        "described": requests.describe_transactions(["t"]).parse,
        "listed": requests.list_transactions(["Ongoing"]).parse,
        "setting": requests.topic_setting("t", "cleanup.policy").parse,
    }[kind]
    with contextlib.suppress(WireError):
        parse(Decoder(answer))


def test_tags_that_we_do_not_know_are_skipped() -> None:
    decoder = Decoder(Encoder().unsigned(1).unsigned(7).unsigned(2).raw(b"ab").int8(5).encoded())
    decoder.skip_tags()
    assert decoder.int8() == 5


def test_a_transaction_is_ended_in_a_version_that_no_broker_lets_hang() -> None:
    assert requests.commit_transaction("t", 1, 0).version <= 4


# RFC 7677, section 3.
NONCE, PASSWORD = "rOprNGfwEbeRWgbNEkqO", "pencil"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
ANSWER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> Scram:
    return Scram("SCRAM-SHA-256", "user", PASSWORD, NONCE)


def test_the_password_is_proved_as_the_standard_has_it() -> None:
    scram = client()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(CHALLENGE) == PROOF
    scram.verify(ANSWER)
    assert PASSWORD not in repr(scram)


def test_a_server_that_does_not_know_the_password_is_not_trusted() -> None:
    for answer in (b"v=" + base64.b64encode(b"guessed"), b"v=%%%", b"v=\xff", b"e=invalid-proof", b""):
        scram = client()
        scram.final(CHALLENGE)
        with pytest.raises(ScramError, match="could not prove"):
            scram.verify(answer)


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"r=rOpr", b"r=another"),
        CHALLENGE.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=99999999999"),
        CHALLENGE.replace(b"i=4096", b"i=x"),
        CHALLENGE + b",x=\xff",
        b"e=other-error",
    ],
)
def test_a_challenge_that_is_not_ours_or_unsafe_is_not_answered(challenge: bytes) -> None:
    with pytest.raises(ScramError, match="challenge"):
        client().final(challenge)


def test_two_exchanges_never_begin_alike() -> None:
    assert Scram("SCRAM-SHA-512", "u", "p").first() != Scram("SCRAM-SHA-512", "u", "p").first()
    assert b"n=a=2Cb=3D," in Scram("SCRAM-SHA-512", "a,b=", "p").first()
