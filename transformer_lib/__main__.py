"""``python -m transformer_lib`` is the ``transformer-lib`` command."""

from transformer_lib.cli import main

if __name__ == "__main__":
    main()
