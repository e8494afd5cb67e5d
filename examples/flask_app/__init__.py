"""A web application in Flask whose users run builds in sessions of their own."""
