"""Predicts for new data: python predict.py ckpt=PATH input=PATH [output=PATH] [key=value …]; see docs/tasks.md."""

if __name__ == "__main__":
    from project.common.early import leave_quietly_on_interrupt

    leave_quietly_on_interrupt()

    from project.predict import main

    main()
