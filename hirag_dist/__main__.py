"""`python -m hirag_dist` is `hirag-dist`."""

from hirag_dist.cli.main import main

main()
