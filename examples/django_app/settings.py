"""All that the application needs: no database, no templates, no middleware.

$ cd examples && DJANGO_SETTINGS_MODULE=django_app.settings python -m django runserver --noreload
"""

from __future__ import annotations

import os
import secrets

# One that all workers know, so that any of them knows the users.
SECRET_KEY = os.environ.get("SECRET_KEY") or secrets.token_hex()
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "django_app.urls"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_000_000

SANDBOX_URL = os.environ.get("SANDBOX_URL", "local:")
BUILD_TIMEOUT = 60.0
