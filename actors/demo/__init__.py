"""``interlock demo``: agents at work on a real tree, two kills, and what the log knew of them."""
