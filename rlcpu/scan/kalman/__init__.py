"""Linear-Gaussian state-space models: likelihood, gradient, filtered and smoothed states."""
