"""Which point is tried next, and which trial is ended early: Optuna's samplers and pruners."""
