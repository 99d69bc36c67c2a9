"""Proof that the detector of slow steps tells slow-downs, and is silent about loops that are well."""
