"""What people are shown and choose while the service runs, counted as evidence that all replicas rank by."""
