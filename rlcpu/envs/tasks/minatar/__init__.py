"""The five games of MinAtar, with as few actions as each needs: "MinAtar/Breakout-v1"."""
