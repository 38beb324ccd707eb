"""``playbook`` and ``python -m playbook``: the command line, with an interpreter made ready for a short life."""

import gc
import os


def main() -> None:
    """Run the command line. What its start builds lives to the end: searching that for garbage only takes time."""
    gc.set_threshold(1_000_000)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them reads every installed package
    from playbook.cli.app import app

    try:
        app()
    finally:
        gc.freeze()  # nor at the exit


if __name__ == "__main__":
    main()
