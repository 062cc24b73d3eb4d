"""What every other room speaks in: actions, clips and events, config, errors, files. No torch, no video here."""
