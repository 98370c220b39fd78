"""``invsvc verify``: check a receipt offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from invsvc_async.cli.files import content_of, existing_file
from invsvc_async.cli.options import argument, option
from invsvc_async.cli.output import Exit, fail, tell
from invsvc_async.errors import InvalidRequestError

_FILE = "What outcome.receipt() or `explain --receipt` made."
_KEY = "It must be signed with the key of this public key (PEM)."


def verify(
    file: Annotated[Path, argument(_FILE, "FILE", callback=existing_file)],
    *,
    public_key: Annotated[
        Path | None, option(_KEY, "FILE", callback=existing_file)
    ] = None,
) -> int:
    """
    Check a receipt offline: `invsvc verify receipt.json --public-key ours.pem`.

    It decides again from the history in the receipt.  Exits with 0 if the verdict follows from it, with 1 if
    it does not, if a byte was changed or a signature does not hold, and with 3 if there is no history to
    decide from.  Without a signature it does not show who wrote it.
    """
    from invsvc_async.reconcile.receipt import check_receipt, public_key_of

    wanted = None if public_key is None else content_of(public_key)
    if wanted is not None:
        public_key_of(wanted)  # a wrong one is a usage error
    content = content_of(file)
    try:
        found = check_receipt(content, wanted)
    except InvalidRequestError as error:
        fail(str(error), error)
        return Exit.FAILED
    signer = found.signed_by
    plain = {
        "operation": found.intent.operation,
        "key": found.intent.key,
        "verdict": found.verdict,
        "now": found.now,
        "follows": found.follows,
        "reason": found.reason,
        "signed_by": signer,
    }
    follows = {
        True: "follows from its history",
        False: f"does not follow: the rules of this version reach {found.now}",
        None: "cannot be decided again",
    }[found.follows]
    signed = "not signed, so that it does not show who wrote it"
    if signer is not None:
        signed = f"signed by {signer}"
        if wanted is None:
            signed += ", a key that nobody vouches for here: use --public-key"
    tell(
        plain,
        f"{found.intent.operation}, intent {found.intent.key}\n"
        f"  verdict: {found.verdict}, which {follows} ({found.reason})\n"
        f"  {signed}",
    )
    if found.follows is None:
        return Exit.UNKNOWN
    if found.follows:
        return Exit.DONE
    return Exit.FAILED
