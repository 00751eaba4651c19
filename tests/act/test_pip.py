"""What pip is told, and what is shown of it."""

from __future__ import annotations

import pytest

from cockpit.act.pip import masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("index-url=https://me:p@ss/word@host/simple", "index-url=https://<hidden>@host/simple"),
        ("--index-url https://me:pa/ss@host/x -q", "--index-url https://<hidden>@host/x -q"),
        ("https://token@host/simple", "https://<hidden>@host/simple"),
        ("me @ git+https://host/me/repo.git@v1.0", "me @ git+https://host/me/repo.git@v1.0"),
        ("https://host/simple\x1b[2J", "https://host/simple^[[2J"),
    ],
)
def test_a_url_is_shown_without_name_and_password(text: str, shown: str) -> None:
    assert masked(text) == shown
