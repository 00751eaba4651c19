"""Colours: the four themes, the one without colour, and how a line's roles become rich styles.

Each theme carries its roles as variables ``line-<role>`` and ``line-<role>-style``, so TCSS can
use ``$line-dim`` too; under a theme of Textual's own the nearest standard variable is taken (TCSS
that must work there keeps to the standard variables). Colour means that a threshold was passed,
so bars and traces have quiet colours and plain text has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, get_args

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from cockpit.tui.line import Role

if TYPE_CHECKING:
    from textual.app import App

DARK, LIGHT, CONTRAST = "cockpit-dark", "cockpit-light", "cockpit-contrast"
TERMINAL, NO_COLOUR = "terminal", "no-colour"

ROLES: tuple[Role, ...] = get_args(Role)

_PALETTES: dict[str, dict[str, str]] = {
    DARK: {
        "foreground": "#d3d7db", "background": "#111417", "surface": "#171b1f",
        "panel": "#1f252a", "dim": "#959da4", "label": "#9db1c4", "title": "#ffffff",
        "accent": "#74b9f5", "good": "#7fca90", "warn": "#e6ba50", "error": "#ff857c",
        "bar": "#6aa9dc", "bar2": "#84bb7e", "bar3": "#c5a0d8", "bar4": "#d8a76d",
        "tag": "#e7c878", "strong": "#ffffff", "removed": "#ff857c",
        "cursor": "#1a334d", "cursor-blurred": "#23292f",
    },
    LIGHT: {
        "foreground": "#23282d", "background": "#fafafa", "surface": "#f0f1f2",
        "panel": "#e6e8ea", "dim": "#5b636b", "label": "#3c5670", "title": "#000000",
        "accent": "#0b5394", "good": "#1a6430", "warn": "#7d4e00", "error": "#ad1118",
        "bar": "#1f5c93", "bar2": "#33652c", "bar3": "#73418d", "bar4": "#83490b",
        "tag": "#6f5000", "strong": "#000000", "removed": "#ad1118",
        "cursor": "#cfe2f5", "cursor-blurred": "#e3e6e9",
    },
    CONTRAST: {
        "foreground": "#ffffff", "background": "#000000", "surface": "#000000",
        "panel": "#1a1a1a", "dim": "#cccccc", "label": "#b8e2ff", "title": "#ffffff",
        "accent": "#7fd4ff", "good": "#7dff9b", "warn": "#ffe14d", "error": "#ffb3ad",
        "bar": "#8cd3ff", "bar2": "#a5f59b", "bar3": "#f2bdff", "bar4": "#ffc98a",
        "tag": "#ffef9e", "strong": "#ffffff", "removed": "#ffb3ad",
        "cursor": "#002f6c", "cursor-blurred": "#2a2a2a",
    },
}  # fmt: skip

_TERMINAL_ROLES = {
    "dim": "ansi_default", "label": "ansi_cyan", "title": "ansi_default", "accent": "ansi_cyan",
    "good": "ansi_green", "warn": "ansi_yellow", "error": "ansi_red", "bar": "ansi_default",
    "bar2": "ansi_green", "bar3": "ansi_magenta", "bar4": "ansi_yellow", "tag": "ansi_yellow",
    "strong": "ansi_default", "removed": "ansi_red",
}  # fmt: skip

_ATTRIBUTES = {"title": "bold", "strong": "bold", "error": "bold", "tag": "bold"}
_TERMINAL_ATTRIBUTES = {**_ATTRIBUTES, "dim": "dim", "accent": "bold"}
# Without colour, what needs somebody must still stand out of what is merely bold.
_NO_COLOUR_ATTRIBUTES = {**_ATTRIBUTES, "accent": "bold", "warn": "bold", "error": "bold underline"}

_STANDARD = {"accent": "accent", "good": "success", "warn": "warning", "error": "error",
             "bar": "primary", "bar2": "success", "bar3": "secondary", "bar4": "accent",
             "tag": "accent", "removed": "error"}  # fmt: skip
"""Where a theme of Textual's own has no ``line-<role>``: its variable that means the same."""


class RowState(IntEnum):
    """How a whole row is shown."""

    PLAIN = 0
    CURSOR = 1
    BLURRED = 2
    """Under the cursor, but another pane has the focus."""
    NUDGED = 3
    """Under the cursor just after a key that could not move it."""


def _rgb_theme(name: str, palette: Mapping[str, str]) -> Theme:
    roles = {f"line-{role}": palette[role] for role in ROLES if role in palette}
    styles = {f"line-{role}-style": _ATTRIBUTES.get(role, "none") for role in ROLES if role}
    return Theme(
        name=name,
        primary=palette["accent"],
        secondary=palette["bar3"],
        warning=palette["warn"],
        error=palette["error"],
        success=palette["good"],
        accent=palette["accent"],
        foreground=palette["foreground"],
        background=palette["background"],
        surface=palette["surface"],
        panel=palette["panel"],
        dark=name != LIGHT,
        variables={
            **roles,
            **styles,
            "line-cursor": palette["cursor"],
            "line-cursor-blurred": palette["cursor-blurred"],
            "block-cursor-background": palette["cursor"],
            "block-cursor-foreground": palette["title"],
            "footer-key-foreground": palette["accent"],
        },
    )


def _ansi_theme(name: str, roles: Mapping[str, str], attributes: Mapping[str, str]) -> Theme:
    """A theme of the terminal's own colours; rows under the cursor are reversed."""
    plain = "ansi_default"
    return Theme(
        name=name,
        ansi=True,
        primary=roles.get("accent", plain),
        secondary=roles.get("bar3", plain),
        warning=roles.get("warn", plain),
        error=roles.get("error", plain),
        success=roles.get("good", plain),
        accent=roles.get("accent", plain),
        foreground=plain,
        background=plain,
        surface=plain,
        panel=plain,
        boost=plain,
        variables={
            **_ansi_variables(coloured=bool(roles)),
            **{f"line-{role}": roles.get(role, plain) for role in ROLES if role},
            **{f"line-{role}-style": attributes.get(role, "none") for role in ROLES if role},
            "line-cursor": "reverse",
            "line-cursor-blurred": "underline",
            "block-cursor-foreground": plain,
            "block-cursor-background": plain,
            "block-cursor-text-style": "reverse",
            "input-cursor-text-style": "reverse",
            "footer-key-foreground": roles.get("accent", plain),
        },
    )


def _ansi_variables(coloured: bool) -> dict[str, str]:
    """What Textual's CSS asks of an ansi theme: its own theme's list, so that none is missing."""
    standard = BUILTIN_THEMES["ansi-dark"].variables
    if coloured:
        return dict(standard)
    return {name: "ansi_default" if "ansi_" in v else v for name, v in standard.items()}


THEMES: tuple[Theme, ...] = (
    *(_rgb_theme(name, palette) for name, palette in _PALETTES.items()),
    _ansi_theme(TERMINAL, _TERMINAL_ROLES, _TERMINAL_ATTRIBUTES),
    _ansi_theme(NO_COLOUR, {}, _NO_COLOUR_ATTRIBUTES),
)


def register(app: App[Any]) -> None:
    """Make the themes known to the app. Without colour also construct it with ``ansi_color=True``
    and NO_COLOR set (``startup.prepare(color=False)``): then Textual drops every colour itself."""
    for theme in THEMES:
        app.register_theme(theme)


def pick(name: str | None, color: bool, environ: Mapping[str, str] | None = None) -> str:
    """The theme to use: no colour wins, then what was asked for, then what the terminal can show.

    A name that is none of ours is returned as it is (Textual's own themes work too). With
    ``environ`` given, a terminal of 16 colours gets its own colours where nothing was asked.
    """
    if not color:
        return NO_COLOUR
    if name is not None:
        return name
    return TERMINAL if environ is not None and has_few_colours(environ) else DARK


def has_few_colours(environ: Mapping[str, str]) -> bool:
    """Whether the terminal says no more than 16 colours: rich's rule, from COLORTERM and TERM."""
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return False
    term = environ.get("TERM", "").strip().lower()
    return not (term.endswith(("256color", "direct")) or "kitty" in term)


def role_styles(
    variables: Mapping[str, str], base: Style, state: RowState = RowState.PLAIN
) -> dict[Role, Style]:
    """Complete styles (background included) of all roles for rows in this state.

    ``variables`` are ``App.theme_variables``, ``base`` is the widget's ``rich_style``.
    """
    ground = base + _row_style(variables, state)
    foreign = state in (RowState.CURSOR, RowState.NUDGED) and "line-cursor" not in variables
    flat = foreign or bool(ground.reverse)
    return {role: _role_style(variables, ground, role, flat) for role in ROLES}


def faded(style: Style, opacity: float) -> Style:
    """What is old, in CSS ``text-opacity``; the attribute where the colours are the terminal's."""
    color, ground = style.color, style.bgcolor
    if color is None or ground is None or color.triplet is None or ground.triplet is None:
        return style + Style(dim=True)
    blended = Color.from_rich_color(ground).blend(Color.from_rich_color(color), opacity)
    return style + Style(color=blended.rich_color)


def _role_style(variables: Mapping[str, str], ground: Style, role: Role, flat: bool) -> Style:
    attributes = variables.get(f"line-{role}-style", _ATTRIBUTES.get(role, "none"))
    style = ground + Style.parse(attributes)
    if flat:
        # Reversed, a role's colour would be a background that nobody can read on; on the cursor
        # of a foreign theme its contrast is not known. Only bold stays.
        return ground + Style(bold=style.bold or None)
    return style + Style(color=_role_colour(variables, role))


def _role_colour(variables: Mapping[str, str], role: Role) -> RichColor | None:
    value = variables.get(f"line-{role}") or variables.get(_STANDARD.get(role, ""), "")
    return _colour(value)


def _colour(value: str) -> RichColor | None:
    """The colour of a theme variable; None where it holds something else (``auto 60%``)."""
    try:
        return Color.parse(value.split(" ")[0]).rich_color if value else None
    except ColorParseError:
        return None


def _row_style(variables: Mapping[str, str], state: RowState) -> Style:
    if state is RowState.PLAIN:
        return Style()
    blurred = state is RowState.BLURRED
    fallback = "surface" if blurred else "block-cursor-background"
    name = "line-cursor-blurred" if blurred else "line-cursor"
    value = variables.get(name) or variables.get(fallback, "reverse")
    ground = _colour(value)
    style = Style(bgcolor=ground) if ground is not None else Style.parse(value)
    if "line-cursor" not in variables and not blurred:
        style += Style(color=_colour(variables.get("block-cursor-foreground", "")))
    return style + Style(underline=True) if state is RowState.NUDGED else style
