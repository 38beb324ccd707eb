"""Modules that the browser imports in place of compiled packages: as much of each as the checker uses."""
