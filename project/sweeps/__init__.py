"""Sweeps: Hydra's sweeper and launcher plugins, an Optuna study, and one fresh process per trial."""
