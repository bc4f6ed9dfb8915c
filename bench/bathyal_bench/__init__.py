"""Measures Bathyal and comparable systems under equal conditions. See bench/README.md."""
