"""Latency: how long a file takes, and what such a number is worth."""
