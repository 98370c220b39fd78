"""``invsvc explain --receipt`` and ``invsvc verify``."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reconcile.test_receipt import OUR_PUBLIC, OURS, THEIR_PUBLIC

WRITE = (
    "write",
    "webhooks.create",
    "url=https://me.example/in",
    "events=invoice.created",
)


@pytest.fixture
def story(invsvc, here, served):
    """Return the story of a write whose answer was lost, and keys beside it."""
    served.script("webhooks.create", "apply, then reset")
    assert invsvc(*WRITE, "--story", "story.json").code == 0
    for name, key in (
        ("ours.pem", OURS),
        ("ours.pub", OUR_PUBLIC),
        ("theirs.pub", THEIR_PUBLIC),
    ):
        Path(name).write_bytes(key)
    return "story.json"


def test_receipt_is_checked_elsewhere(invsvc, story, tmp_path_factory):
    """A receipt is checked in another place, by a process that has no settings."""
    assert (
        invsvc("explain", story, "--receipt", "receipt.json", "--key", "ours.pem").code
        == 0
    )
    assert stat.S_IMODE(Path("receipt.json").stat().st_mode) == 0o600
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("receipt.json", "ours.pub"):
        (elsewhere / name).write_bytes(Path(name).read_bytes())
    bare = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("INVSVC_")
    }

    ran = subprocess.run(
        [sys.executable, "-m", "invsvc_async.cli", "verify", "receipt.json", "--public-key", "ours.pub"],
        capture_output=True, text=True, check=False, cwd=elsewhere,
        env=bare | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip

    assert (ran.returncode, ran.stderr) == (0, "")
    first, verdict, signed = ran.stdout.splitlines()
    assert first.startswith("webhooks.create, intent ")
    assert (
        verdict
        == "  verdict: applied, which follows from its history (a read of the state shows the write)"
    )
    assert signed.startswith("  signed by ")


def test_unsigned(invsvc, story):
    """Without a signature it says what it does not show; with --public-key, that is an error."""
    invsvc("explain", story, "--receipt", "receipt.json")

    code, out, _ = invsvc("verify", "receipt.json")
    assert (code, "not signed, so that it does not show who wrote it" in out) == (
        0,
        True,
    )
    code, out, err = invsvc("verify", "receipt.json", "--public-key", "ours.pub")
    assert (code, out) == (1, "")
    assert "receipt: is not signed. Ask its writer for a signed one." in err


def test_json(invsvc, story):
    invsvc("explain", story, "--receipt", "receipt.json", "--key", "ours.pem")

    found = invsvc("verify", "receipt.json", "--json").json

    assert [found[name] for name in ("operation", "verdict", "now", "follows")] == [
        "webhooks.create", "applied", "applied", True,
    ]  # fmt: skip
    assert found["signed_by"] in Path("receipt.json").read_text()


def test_what_fails(invsvc, story):
    """A changed byte, another key and a verdict that does not follow end with 1; no history ends with 3."""
    invsvc("explain", story, "--receipt", "receipt.json", "--key", "ours.pem")
    receipt = Path("receipt.json").read_text()
    Path("changed.json").write_text(receipt.replace("me.example", "us.example"))
    plain = json.loads(Path(story).read_text())
    for name, changes in (
        ("forged", {"verdict": "refused"}),
        ("bare", {"history": []}),
    ):
        Path("other.json").write_text(json.dumps(plain | changes))
        invsvc("explain", "other.json", "--receipt", f"{name}.json")

    code, out, err = invsvc("verify", "changed.json")
    assert (code, out, "was changed since it was made" in err) == (1, "", True)
    code, _, err = invsvc("verify", "receipt.json", "--public-key", "theirs.pub")
    assert (code, "is signed by another key" in err) == (1, True)
    code, out, _ = invsvc("verify", "forged.json")
    assert (
        code,
        "does not follow: the rules of this version reach applied" in out,
    ) == (1, True)
    code, out, _ = invsvc("verify", "bare.json")
    assert (code, "cannot be decided again" in out) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "story.json", "--key", "ours.pem"), "use it with --receipt"),
        (("explain", "story.json", "--receipt", "story.json"), "story.json is the story"),
        (("explain", "story.json", "--receipt", "r.json", "--key", "ours.pub"), "key: is no private key of Ed25519"),
        (("verify", "none.json"), "does not exist"),
        (("verify", "story.json", "--public-key", "ours.pem"), "public_key: is no public key of Ed25519"),
    ],
)  # fmt: skip
def test_usage_errors(invsvc, story, arguments, words):
    code, out, err = invsvc(*arguments)

    assert (code, out) == (2, "")
    assert words in " ".join(err.replace("│", " ").split())
    assert OURS.decode().splitlines()[1] not in err
