"""The process that touches the machine, and the line protocol to it. Never imports textual."""
