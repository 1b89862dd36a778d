"""What is wrong with a site, why it matters and how to fix it: rules, and what judges by them."""
