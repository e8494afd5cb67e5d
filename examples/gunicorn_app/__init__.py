"""A WSGI app for a server that forks its workers."""
