"""Where the views are."""

from __future__ import annotations

from django.urls import path
from django.views.decorators.http import require_http_methods, require_POST

from . import views

urlpatterns = [
    path("build", require_POST(views.build)),
    path("session", require_http_methods(["DELETE"])(views.leave)),
]
