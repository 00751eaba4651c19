"""Value → lines of text with style roles. Pure: no textual, no state; screens place them."""
