"""What runs of the course left, read again: two of them side by side, and recorded editions."""
