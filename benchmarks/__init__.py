"""Speed and scale, side by side with peers, as ratios in one run."""
