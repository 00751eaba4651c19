"""The one-shot commands: a Link, a question, text or JSON on stdout. Never import textual."""
