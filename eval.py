"""Evaluates a checkpoint: python eval.py ckpt=PATH [split=test] [key=value …]; see README.md."""

from project.eval import main

if __name__ == "__main__":
    main()
