"""Value → lines of text with style roles. Pure: no textual, no state; the screens only place them."""
