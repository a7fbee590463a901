"""`python -m curate`: the command line, where its script is not on the path."""

from curate.cli import main

if __name__ == "__main__":
    main()
