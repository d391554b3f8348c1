"""Trains: python train.py [+experiment=x] [group=choice] [key=value …]; see README.md."""

from project.train import main

if __name__ == "__main__":
    main()
