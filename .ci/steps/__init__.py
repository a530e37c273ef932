"""The steps of set-up: each installs or makes one thing, if it is missing. Standard library only, without the product's
modules."""
