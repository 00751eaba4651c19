"""The themes: legible everywhere, complete, and without colour where none is wanted."""

from __future__ import annotations

import pytest
from rich.color import ColorSystem
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.theme import BUILTIN_THEMES
from textual.widgets import Footer, Input

from cockpit.tui import theme
from cockpit.tui.theme import ROLES, RowState, role_styles

RGB = [t for t in theme.THEMES if not t.ansi]
ANSI = [t for t in theme.THEMES if t.ansi]
STATES = list(RowState)


def styles_of(one: theme.Theme, state: RowState) -> dict[str, Style]:
    ground = Color.parse(one.background or "").rich_color
    colour = Color.parse(one.foreground or "").rich_color
    base = Style(color=colour, bgcolor=ground)
    variables = {**one.to_color_system().generate(), **one.variables}
    return role_styles(variables, base, state)


def contrast(style: Style) -> float:
    assert style.color is not None
    assert style.bgcolor is not None
    pair = [Color.from_rich_color(colour) for colour in (style.color, style.bgcolor)]
    light, dark = sorted((luminance(colour) for colour in pair), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Color) -> float:
    """WCAG 2.1, relative luminance."""
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("one", RGB, ids=lambda one: one.name)
def test_every_role_has_a_contrast_of_at_least_four_and_a_half(one, state):
    low = {role: contrast(style) for role, style in styles_of(one, state).items()}
    assert min(low.values()) >= 4.5, {r: round(c, 2) for r, c in low.items() if c < 4.5}


def test_the_high_contrast_theme_reaches_seven_everywhere():
    one = next(t for t in RGB if t.name == theme.CONTRAST)
    for state in STATES:
        for role, style in styles_of(one, state).items():
            assert contrast(style) >= 7, (role, state)


@pytest.mark.parametrize("one", ANSI, ids=lambda one: one.name)
def test_ansi_themes_use_only_what_every_terminal_has(one):
    for state in STATES:
        for style in styles_of(one, state).values():
            for colour in (style.color, style.bgcolor):
                assert colour is None or colour.system == ColorSystem.STANDARD
                assert colour is None or colour.is_default or (colour.number or 0) < 8


def test_without_colour_no_role_has_one_and_the_cursor_is_reversed():
    one = next(t for t in ANSI if t.name == theme.NO_COLOUR)
    for state in STATES:
        for style in styles_of(one, state).values():
            assert style.color is None or style.color.is_default
            assert style.bgcolor is None or style.bgcolor.is_default
    assert all(style.reverse for style in styles_of(one, RowState.CURSOR).values())


def test_without_colour_an_error_still_differs_from_a_warning_and_from_plain_text():
    styles = styles_of(next(t for t in ANSI if t.name == theme.NO_COLOUR), RowState.PLAIN)
    assert len({styles["error"], styles["warn"], styles[""]}) == 3


@pytest.mark.parametrize("one", theme.THEMES, ids=lambda one: one.name)
def test_the_cursor_is_seen_with_and_without_focus_and_when_it_is_nudged(one):
    looks = [styles_of(one, state)[""] for state in STATES]
    assert len(set(looks)) == len(STATES)


def test_a_theme_of_textuals_own_has_all_roles_and_a_legible_cursor():
    one = BUILTIN_THEMES["nord"]
    variables = {**one.to_color_system().generate(), **one.variables}
    base = Style.parse("#d8dee9 on #2e3440")
    assert set(role_styles(variables, base)) == set(ROLES)
    cursor = role_styles(variables, base, RowState.CURSOR)
    assert {(style.color, style.bgcolor) for style in cursor.values()} == {
        (cursor[""].color, cursor[""].bgcolor)
    }
    assert contrast(cursor["dim"]) >= 4.5


class ThemeApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        theme.register(self)

    def compose(self):
        yield Input()
        yield Footer()


async def test_textuals_own_widgets_work_under_every_theme():
    app = ThemeApp()
    async with app.run_test(size=(40, 6)) as pilot:
        for one in theme.THEMES:
            app.theme = one.name
            await pilot.pause()
            assert app.current_theme.name == one.name
            assert app.screen.styles.background == Color.parse(one.background or "")


@pytest.mark.parametrize(
    ("name", "color", "environ", "picked"),
    [
        (None, True, None, theme.DARK),
        (None, True, {"TERM": "xterm-256color"}, theme.DARK),
        (None, True, {"TERM": "xterm", "COLORTERM": "truecolor"}, theme.DARK),
        (None, True, {"TERM": "xterm"}, theme.TERMINAL),
        (None, True, {"TERM": "linux"}, theme.TERMINAL),
        ("cockpit-light", True, {"TERM": "linux"}, theme.LIGHT),
        ("nord", True, None, "nord"),
        ("cockpit-light", False, None, theme.NO_COLOUR),
        (None, False, {"TERM": "xterm-256color"}, theme.NO_COLOUR),
    ],
)
def test_no_colour_wins_then_the_name_then_what_the_terminal_can_show(name, color, environ, picked):
    assert theme.pick(name, color, environ) == picked
