"""Evaluates a checkpoint: python eval.py ckpt=PATH [split=test] [key=value …]; see README.md."""

if __name__ == "__main__":
    from project.common.early import leave_quietly_on_interrupt

    leave_quietly_on_interrupt()

    from project.eval import main

    main()
