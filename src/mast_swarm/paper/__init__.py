"""Each figure, table and claim of the paper as one declared experiment of cells that are kept (`mast reproduce`)."""
