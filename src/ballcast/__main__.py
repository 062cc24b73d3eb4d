"""`python -m ballcast`, which is also how torchrun starts it."""

from ballcast.cli import main

main()
