"""Where the facts come from: one module a source; a reading or a gap that says why not."""
