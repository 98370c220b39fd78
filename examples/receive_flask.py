"""Receive events in Flask: ``flask --app examples.receive_flask run``."""

from flask import Flask, request

from examples.receive import receiver

app = Flask(__name__)


@app.post("/events")
def events():
    """Answer a delivery."""
    receipt = receiver.sync.answer(
        request.method, request.headers.items(), request.stream.read
    )
    return receipt.outcome, receipt.status, dict(receipt.headers)
