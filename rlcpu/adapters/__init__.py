"""Our environments, buffers and policies in other libraries' loops.

Each module imports the library that it is named after, an extra of this package: `sb3` and
`torch`. Importing this package imports none of them.
"""
