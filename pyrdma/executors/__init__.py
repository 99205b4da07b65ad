"""Where the points of a simulated sweep are measured."""
