"""The environments of this library, a folder for each family."""
