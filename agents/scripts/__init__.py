"""Command lines, and what they share: configs, environments and run folders."""
