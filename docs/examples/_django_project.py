"""A Django project's settings, as far as the example needs any; not part of what it shows."""

from __future__ import annotations

import django
from django.conf import settings

if not settings.configured:
    settings.configure(DATABASES={}, INSTALLED_APPS=[], USE_TZ=True)
    django.setup()
