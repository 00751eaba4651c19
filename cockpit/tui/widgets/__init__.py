"""Widgets on the line API: they draw given lines and redraw only those that changed."""
