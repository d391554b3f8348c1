"""Sweeps: many trials of one configuration, an Optuna study, one coordinator."""
