"""Output, provenance and charts of measurements, for the lab, the chapters' records and the stress tests."""
