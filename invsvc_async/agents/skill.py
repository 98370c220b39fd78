"""The page for agents, which is in the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SKILL: Final = Path(__file__).with_name("SKILL.md")
