"""How fast the package is, next to what it is made of."""
