"""Claim forms: what holds a row in work, behind one port of six verbs."""
