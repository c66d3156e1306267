"""Final scores of all configs over several seeds, and the page about them."""
