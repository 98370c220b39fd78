"""What version 0.1 pickled is loaded, though its classes are in other modules now."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys

import pytest

from invsvc_async import AmbiguousWriteError, Applied, Envelope, Intent, Outcome, Verdict
from invsvc_async.batch import Result
from invsvc_async.storage import old_pickles

OLD = {
    "ambiguous": (
        "gASVQwgAAAAAAACME2ludnN2Y19hc3luYy5lcnJvcnOUjAhfcmVzdG9yZZSTlGgAjBNBbWJpZ3VvdXNXcml0ZUVycm9ylJOUjI93"
        "ZWJob29rcy5jcmVhdGUgKGspOiB1bmtub3duOiBub3RoaW5nIHRlbGxzLiBEbyBub3Qgc2VuZCBpdCBhZ2FpbiBibGluZGx5OiBr"
        "ZWVwIC5pbnRlbnQgYW5kIGNhbGwgY2xpZW50LnNldHRsZShpbnRlbnQpIGxhdGVyLCBvciBsb29rIHlvdXJzZWxmLpSFlH2UjAdv"
        "dXRjb21llIwUaW52c3ZjX2FzeW5jLm91dGNvbWWUjAdPdXRjb21llJOUKYGUfZQojAd2ZXJkaWN0lIwbaW52c3ZjX2FzeW5jLnJl"
        "Y29uY2lsZS5lbmRzlIwHVmVyZGljdJSTlIwHdW5rbm93bpSFlFKUjAdtZXNzYWdllIwNbm90aGluZyB0ZWxsc5SMCGV2aWRlbmNl"
        "lIwfaW52c3ZjX2FzeW5jLnJlY29uY2lsZS5ldmlkZW5jZZSMCEV2aWRlbmNllJOUKYGUfZQojAViYXNpc5SMBG5vbmWUjAdyZWFk"
        "X2F0lE6MDHdpbmRvd191bnRpbJROjApjYW5kaWRhdGVzlCmMCmR1cGxpY2F0ZXOUKXVijAV2YWx1ZZROjAVlcnJvcpRoAmgAjBFS"
        "ZXNwb25zZUxvc3RFcnJvcpSTlIwEbG9zdJSFlH2UKIwJb3BlcmF0aW9ulIwPd2ViaG9va3MuY3JlYXRllIwGc3RhdHVzlE51h5RS"
        "lIwIYXR0ZW1wdHOUSwGMB3Jlc2VuZHOUSwCMC3NlY3JldF9sb3N0lImMB2hpc3RvcnmUKGgYjAdBdHRlbXB0lJOUKYGUfZQojAdz"
        "dGFydGVklEc/8AAAAAAAAIwFZW5kZWSUR0AAAAAAAAAAjANlbmSUaA+MA0VuZJSTlGgnhZRSlGgsTowIcmVhZGFibGWUiYwMb3du"
        "X2VudmVsb3BllIloI05oJE6MBXN0YW1wlE6MC3JldHJ5X2FmdGVylE6MDXRva2VuX3JlbmV3ZWSUiYwHdGltZW91dJRHQD4AAAAA"
        "AAB1YmgYjAdSZWFkaW5nlJOUKYGUfZQoaDdHQAgAAAAAAABoOEdAEAAAAAAAAGgsS8hoP4iMBHNlZW6UXZSMCXJhd19jb3VudJRL"
        "AIwEZnVsbJSJaEBOjBFjbGFpbWVkX2J5X290aGVyc5QokZSMB2d1ZXNzZWSUKJGUjAdmaW5kaW5nlE5oJE51YmgYjARUaWNrlJOU"
        "KYGUfZSMAmF0lEdAFAAAAAAAAHNiaEUpgZR9lChoN0dACAAAAAAAAGg4R0AQAAAAAAAAaCxOaD+JaEhOaEpLAGhLiWhATmhMaE1o"
        "TmhPaFBoGIwKQ2Fubm90VGVsbJSTlCmBlH2UKIwGcmVhc29ulIwCbm+UaCEpdWJoJE51YnSUjApzdGFydGVkX2FzlIwdaW52c3Zj"
        "X2FzeW5jLnJlY29uY2lsZS5pbnRlbnSUjAZJbnRlbnSUk5QpgZR9lCiMA2tleZSMAWuUaCpoK4wEcGF0aJR9lIwFcXVlcnmUfZSM"
        "BGJvZHmUfZQojAN1cmyUjBVodHRwczovL21lLmV4YW1wbGUvaW6UjAZldmVudHOUXZSMD2ludm9pY2UuY3JlYXRlZJRhdYwIaGFz"
        "X2JvZHmUiIwFc2NvcGWUaGCMBVNjb3BllJOUKYGUfZQojAhiYXNlX3VybJSMF2h0dHBzOi8vaG9zdC5leGFtcGxlL3YylIwEdGVh"
        "bZSMAXSUjAhsaXZlbW9kZZSIjApjcmVkZW50aWFslIwDYWJjlHVijAN0YWeUTowIYmFzZWxpbmWUTowGYm91bmRzlGgPjAZCb3Vu"
        "ZHOUk5QpgZR9lCiMA2xvd5RHP/AAAAAAAACMBGhpZ2iUR0AAAAAAAAAAdWKMBHNlbnSUaGCMBFNlbnSUk5QpgZR9lCiMCGVhcmxp"
        "ZXN0lEc/8AAAAAAAAIwGbGF0ZXN0lEdAAAAAAAAAAIwPYXR0ZW1wdF90aW1lb3V0lEdAPgAAAAAAAGg5aGCMB1NlbnRFbmSUk5Qp"
        "gZR9lCiMBGtpbmSUjARsb25nlGiOR0AIAAAAAAAAaI1HQAAAAAAAAAB1YnVihZSMCXN0cmFuZ2Vyc5QpjA9mb3Jnb3R0ZW5fdW50"
        "aWyUTowGbmV3ZXN0lE6MBW5vbmNllE6MBnBvbGljeZSMFWludnN2Y19hc3luYy5zZXR0aW5nc5SMD1JlY29uY2lsZVBvbGljeZST"
        "lCmBlH2UKIwSc2V0dGxlX2FmdGVyX2Vycm9ylEdAAAAAAAAAAIwRc2V0dGxlX2FmdGVyX2xvc3OUR0AuAAAAAAAAjAhkZWFkbGlu"
        "ZZRHQFaAAAAAAACMBnJlc2VuZJSMBnByb3ZlbpSMC21heF9yZXNlbmRzlEsBjBF3YWl0X3doZW5fbGltaXRlZJSJjAtjbG9ja19z"
        "bGFja5RHP9AAAAAAAACMCmNsb2NrX2JhbmSURz/wAAAAAAAAjA5hYnNlbmNlX3dpdGhpbpRHQILAAAAAAACMDmpvdXJuZXlfcmVh"
        "ZGVylIwMam91cm5leXMuZ2V0lIwZam91cm5leV9yZWFkc19zaG93X2RyYWZ0c5SJjAt0YWdfY3JlYXRlc5SJdWKMCHRpbWVvdXRz"
        "lGicjAhUaW1lb3V0c5STlCmBlH2UKIwHYXR0ZW1wdJRHQD4AAAAAAACMB2Nvbm5lY3SUR0AkAAAAAAAAjARjYWxslEdATgAAAAAA"
        "AHVijAZyZWFkZXKUTnViaHxOdWJzh5RSlC4="
    ),
    "result": (
        "gASVTgEAAAAAAACMGmludnN2Y19hc3luYy5iYXRjaC5yZXN1bHRzlIwGUmVzdWx0lJOUKYGUfZQojANrZXmUjAFrlIwJb3BlcmF0"
        "aW9ulIwPd2ViaG9va3MuY3JlYXRllIwHdmVyZGljdJSMG2ludnN2Y19hc3luYy5yZWNvbmNpbGUuZW5kc5SMB1ZlcmRpY3SUk5SM"
        "B2FwcGxpZWSUhZRSlIwHbWVzc2FnZZSMAJSMBWJhc2lzlGgRjAV0aGluZ5ROjAhhdHRlbXB0c5RLAYwHcmVzZW5kc5RLAIwFcmVh"
        "ZHOUSwCMB3NlY29uZHOURwAAAAAAAAAAjAtzZWNyZXRfbG9zdJSJjAVlcnJvcpROjAZzdGF0dXOUTowKY2FuZGlkYXRlc5QpjApk"
        "dXBsaWNhdGVzlCmMBXN0b3J5lE6MB2RvbmVfYXSUTowHb3V0Y29tZZROdWIu"
    ),
    "envelope": (
        "gASVBAEAAAAAAACMDm1zZ3NwZWMuX3V0aWxzlIwHcmVidWlsZJSTlIwRaW52c3ZjX2FzeW5jLndpcmWUjAhFbnZlbG9wZZSTlH2U"
        "KIwHc3VjY2Vzc5SIjANyYXeUjAdtc2dzcGVjlIwDUmF3lJOUQwh7ImEiOiAxfZSFlFKUjAdtZXNzYWdllE6MBXN0YW1wlE6MBG5l"
        "eHSUTowIaGFzX21vcmWUiYwNdG90YWxfcmVzdWx0c5ROjARwYWdllE6MCHBlcl9wYWdllE6MCnJlcXVlc3RfaWSUTowHY29udGVu"
        "dJRDI3sic3VjY2VzcyI6IHRydWUsICJkYXRhIjogeyJhIjogMX19lHWGlFKULg=="
    ),
    "finding": (
        "gASVWQAAAAAAAACMH2ludnN2Y19hc3luYy5yZWNvbmNpbGUuZXZpZGVuY2WUjAdBcHBsaWVklJOUKYGUfZQojAV2YWx1ZZR9lIwC"
        "aWSUjAFhlHOMCmR1cGxpY2F0ZXOUKXViLg=="
    ),
}


def loaded(name):
    return pickle.loads(base64.b64decode(OLD[name]))  # noqa: S301 - our own


def test_error_of_a_write():
    """It has its outcome, with the history and the intent."""
    error = loaded("ambiguous")

    assert type(error) is AmbiguousWriteError
    assert type(error.outcome) is Outcome
    assert error.outcome.verdict is Verdict.UNKNOWN
    assert len(error.outcome.history) == 4
    assert type(error.intent) is Intent
    assert error.intent.sent[0].attempt_timeout == 30.0
    assert "lost" in error.outcome.explain()


@pytest.mark.parametrize(("name", "kind"), [("result", Result), ("envelope", Envelope), ("finding", Applied)])
def test_value(name, kind):
    """It is of the class that has the name today."""
    assert type(loaded(name)) is kind


@pytest.mark.parametrize("name", OLD)
def test_it_is_loaded_first_of_all(name):
    """The process that loads it has imported nothing of the package."""
    code = f"import base64, pickle; print(type(pickle.loads(base64.b64decode({OLD[name]!r}))).__name__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603

    assert ran.stdout.strip() == type(loaded(name)).__name__, ran.stderr


@pytest.mark.parametrize(("old", "new"), old_pickles.MOVED.items())
def test_module_is_the_same(old, new):
    """Imported by its old name, a module is the one of the new name, and keeps that."""
    code = f"import importlib, sys; one = importlib.import_module({old!r}); print(one.__name__, one.__spec__.name)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603

    assert ran.stdout.split() == [new, new], ran.stderr


def test_no_other_name():
    """A module that never was is not found."""
    with pytest.raises(ModuleNotFoundError):
        __import__("invsvc_async.outcomes")
