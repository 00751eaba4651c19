"""All that changes anything: plan, run, verify. Every action is written to the journal."""
