"""Trains: python train.py [+experiment=x] [group=choice] [key=value …]; see README.md.

Hydra's shell completion looks for the text @hydra.main in this file, and completes nothing without it.
"""

if __name__ == "__main__":
    from project.common.early import leave_quietly_on_interrupt

    leave_quietly_on_interrupt()

    from project.train import main

    main()
