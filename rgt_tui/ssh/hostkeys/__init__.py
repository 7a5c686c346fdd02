"""Host keys: what known_hosts says, what a person is asked, and what is written down. Nothing here connects."""
