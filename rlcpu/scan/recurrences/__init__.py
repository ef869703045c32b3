"""First-order linear recurrences, and the returns and advantages that are cases of them."""
