"""Bathyal measured beside the systems that one would pick instead. See bench/README.md."""
