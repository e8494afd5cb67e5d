"""How a service spells what we need of it: run an argument list, read and write files, end a sandbox."""
