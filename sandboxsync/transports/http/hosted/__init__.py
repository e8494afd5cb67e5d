"""Sessions, commands and background processes made of plain exec: a host of ours inside of the sandbox keeps them.

The host is shell code (`sandboxsync.transports.shell.host`), put into the sandbox on first use. It needs bash and
coreutils there, and of the service that it runs an argument list to its end and streams what that prints.
"""
