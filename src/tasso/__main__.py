"""python -m tasso"""

from tasso.cli import main

if __name__ == "__main__":
    main()
