"""One module a page or dialog."""
