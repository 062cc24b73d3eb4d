"""Who may use the server: tokens, sessions, roles."""
