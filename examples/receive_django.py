"""Receive events in Django, under ASGI or WSGI: ``python -m examples.receive_django runserver``."""

import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.urls import path

from examples.receive import receiver

# In a project: settings.py.
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])
urlpatterns = [path("events", receiver.django_view)]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
