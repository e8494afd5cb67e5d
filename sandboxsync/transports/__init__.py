"""Where sandboxes live. `base` is the contract; each package beside it fills it in."""
