"""A web application in Django whose users run builds in sessions of their own."""
